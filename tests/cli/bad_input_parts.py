"""The parts of a row of bad input."""

from __future__ import annotations

from hmx.errors import ExitCode

USAGE, ARTEFACT = ExitCode.USAGE, ExitCode.ARTEFACT
BIG = str(10**400)
DIGITS = "9" * 5000
SET = "--set"

Row = tuple[list[str], int, list[str]]


def rows(command: str, *given: tuple[list[str], int, list[str]]) -> list[Row]:
    """Rows of one command."""
    return [([*command.split(), *words], code, parts) for words, code, parts in given]
