"""What is wrong with a configuration, as data, and as the error a user reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hmx.config.textfile import quoted
from hmx.errors import HmxError

UNKNOWN = "unknown"
"""The code of a key that does not exist; its suggestion is the nearest one that does."""

_LONGEST = 400  # characters of a suggestion

MAX_LINES = 20
"""The problems that an error lists; more are counted, for they are those of a file that is no configuration."""


class Problem(NamedTuple):
    """One thing that is wrong (or, in a list of warnings, worth knowing).

    `suggestion` holds values that work, as `key=value`, alternatives parted by " or "; it may be empty.
    `value` and `origin` are as the user gave them; empty where the values of `keys` speak for themselves.
    """

    code: str
    keys: tuple[str, ...]
    message: str
    suggestion: str = ""
    value: str = ""
    origin: str = ""


def line(problem: Problem, values: Mapping[str, str] | None = None, origins: Mapping[str, str] | None = None) -> str:
    """One line: each key with its value and where that came from, what is wrong, and what works."""
    values, origins = values or {}, origins or {}
    named = []
    for key in problem.keys:
        value = quoted(problem.value or values.get(key, ""))
        origin = problem.origin or origins.get(key, "")
        named.append(quoted(key) + (f" = {value}" if value else "") + (f" ({origin})" if origin else ""))
    words = f"{', '.join(named)}: {problem.message}" if named else problem.message
    if not problem.suggestion:
        return words
    works = quoted(problem.suggestion, _LONGEST)
    return f"{words}; did you mean {works}?" if problem.code == UNKNOWN else f"{words}; try {works}"


def error(
    problems: Sequence[Problem],
    values: Mapping[str, str] | None = None,
    origins: Mapping[str, str] | None = None,
) -> HmxError:
    """All problems as one error, a line each, but no more than `MAX_LINES`."""
    lines = [line(p, values, origins) for p in problems[:MAX_LINES]]
    if len(lines) == 1:
        return HmxError(lines[0], _hint(problems[0], origins or {}))
    if len(problems) > MAX_LINES:
        lines.append(f"and {len(problems) - MAX_LINES:,} more")
    message = f"{len(problems):,} problems in the configuration\n" + "\n".join(f"  {text}" for text in lines)
    return HmxError(message, "every line names a value that works, to be given as `--set key=value`")


def _hint(problem: Problem, origins: Mapping[str, str]) -> str:
    """The first value that works, said in the way the bad one was given: an override would not mend a bad file."""
    pair = quoted(problem.suggestion.split(" or ")[0], _LONGEST)
    key, equals, value = pair.partition("=")
    if not equals:
        return "`hmx train --help` names the options"
    origin = problem.origin or (origins.get(problem.keys[0], "") if problem.keys else "")
    if origin.startswith("--") and origin != "--set":
        return f"{origin} {value}"
    if origin.startswith("HMX_"):
        return f"HMX_{key.replace('.', '_').upper()}={value}"
    if ".toml" in origin:
        return f"in {origin}, section [{key.partition('.')[0]}], set {key.rpartition('.')[2]} to {value}"
    return f"--set {pair}" if "." in key else pair
