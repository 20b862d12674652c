"""Completion scripts for bash, zsh and fish; each calls the program as typed, such as `.venv/bin/hmx`."""

from __future__ import annotations

# Bash splits words at equals signs, so the values of `--set key=value` need the line itself.
BASH = r"""_hmx_completion() {
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
"""

# The program prints a candidate a line as it does for fish: the value, a tab, and what it means.
ZSH = r"""#compdef hmx
local -a found
local suffix=" "
found=( ${(f)"$(_TYPER_COMPLETE_ARGS="${words[1,CURRENT]}" _TYPER_COMPLETE_FISH_ACTION=get-args \
    _HMX_COMPLETE=complete_fish ${~words[1]})"} )
(( $#found )) || { _files; return }
# The value of `--set algo.gamma=` follows without a space.
[[ ${found[1]%%$'\t'*} == *= ]] && suffix=""
found=( "${(@)found//:/\\:}" )
found=( "${(@)found/$'\t'/:}" )
_describe value found -S "$suffix"
"""

FISH = r"""function __hmx_completion
    set -lx _HMX_COMPLETE complete_fish
    set -lx _TYPER_COMPLETE_FISH_ACTION $argv[1]
    set -lx _TYPER_COMPLETE_ARGS (commandline -cp)
    set -l words (commandline -opc)
    $words[1]
end

complete --command hmx --no-files --arguments '(__hmx_completion get-args)' --condition '__hmx_completion is-args'
"""

SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}
