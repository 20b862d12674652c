"""Completion scripts for bash, zsh and fish."""

from __future__ import annotations

from typer.completion import get_completion_script

FILES = {"bash": "hmx.bash", "zsh": "_hmx", "fish": "hmx.fish"}


def scripts() -> dict[str, str]:
    """File name -> script."""
    made = {
        shell: get_completion_script(prog_name="hmx", complete_var="_HMX_COMPLETE", shell=shell).strip() + "\n"
        for shell in FILES
    }
    # `--set algo.gamma=` goes on without a space.
    made["bash"] = _once(
        made["bash"], "    return 0\n", "    [[ ${COMPREPLY[0]} == *= ]] && compopt -o nospace\n    return 0\n"
    )
    # The file is sourced by the first Tab: without this line that Tab would only define the function.
    made["zsh"] += '\n[[ "$funcstack[1]" == _hmx ]] && _hmx_completion "$@"\n'
    return {FILES[shell]: text for shell, text in made.items()}


def _once(text: str, old: str, new: str) -> str:
    if text.count(old) != 1:
        raise ValueError(f"the completion script has changed: {old!r} is not in it once")
    return text.replace(old, new)
