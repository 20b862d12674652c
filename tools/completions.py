"""Completion scripts for bash, zsh and fish."""

from __future__ import annotations

from typer.completion import get_completion_script

# Bash cuts words at equals signs, so that the values of `--set key=value` need the line itself.
BASH = r"""_hmx_completion() {
    local IFS=$' \t\n' line=${COMP_LINE:0:COMP_POINT} words current
    read -ra words <<< "$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    current=${words[${#words[@]} - 1]}
    IFS=$'\n'
    COMPREPLY=( $( env COMP_WORDS="${words[*]}" \
                   COMP_CWORD=$(( ${#words[@]} - 1 )) \
                   _HMX_COMPLETE=complete_bash "$1" ) )
    # What is offered replaces the part behind the equals sign only.
    [[ $current == *=* && $COMP_WORDBREAKS == *=* ]] && COMPREPLY=( "${COMPREPLY[@]#*=}" )
    # `--set algo.gamma=` goes on without a space.
    [[ ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2> /dev/null
    return 0
}

complete -o default -F _hmx_completion hmx
"""

# The file is sourced by the first Tab: without this line that Tab would only define the function.
FIRST_TAB = '\n[[ "$funcstack[1]" == _hmx ]] && _hmx_completion "$@"\n'


def scripts() -> dict[str, str]:
    """File name -> script."""
    return {"hmx.bash": BASH, "_hmx": _typer("zsh") + FIRST_TAB, "hmx.fish": _typer("fish")}


def _typer(shell: str) -> str:
    script = get_completion_script(prog_name="hmx", complete_var="_HMX_COMPLETE", shell=shell)
    return script.strip() + "\n"
