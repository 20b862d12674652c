_hmx_completion() {
    local IFS=$' \t\n' line=${COMP_LINE:0:COMP_POINT} words current
    read -ra words <<< "$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    current=${words[${#words[@]} - 1]}
    IFS=$'\n'
    COMPREPLY=( $( env COMP_WORDS="${words[*]}" \
                   COMP_CWORD=$(( ${#words[@]} - 1 )) \
                   _HMX_COMPLETE=complete_bash "$1" ) )
    # A candidate replaces only the part behind the equals sign.
    [[ $current == *=* && $COMP_WORDBREAKS == *=* ]] && COMPREPLY=( "${COMPREPLY[@]#*=}" )
    # The value of `--set algo.gamma=` follows without a space.
    [[ ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2> /dev/null
    return 0
}

complete -o default -F _hmx_completion hmx
