_hmx_completion() {
    local IFS=$'
'
    COMPREPLY=( $( env COMP_WORDS="${COMP_WORDS[*]}" \
                   COMP_CWORD=$COMP_CWORD \
                   _HMX_COMPLETE=complete_bash $1 ) )
    [[ ${COMPREPLY[0]} == *= ]] && compopt -o nospace
    return 0
}

complete -o default -F _hmx_completion hmx
