"""Problems of a configuration, as data and as the error message that a user reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from hmx.config.coerce import show, toml
from hmx.config.fields import FIELDS
from hmx.config.textfile import quoted
from hmx.errors import HmxError, nearest

UNKNOWN = "unknown"
"""The code of a key that does not exist; its fix is the nearest key that does."""

VALUES = "values"
"""The origin of a value that a Python program passes."""

MAX_LINES = 20
"""Number of problems that an error lists; the others are only counted."""

_LONGEST = 400  # characters of a fix


Fixes = tuple[tuple[str, Any], ...]
"""Alternatives as (key, value) pairs."""


class Problem(NamedTuple):
    """A problem of a configuration or, in a list of warnings, a remark.

    Each (key, value) pair of `fixes`, set alone, solves the problem. `value` and `origin` are as the user gave them;
    if empty, they are looked up by key. `values` are the numbers of a violated relation, for JSON.
    """

    code: str
    keys: tuple[str, ...]
    message: str
    fixes: Fixes = ()
    value: str = ""
    origin: str = ""
    values: Mapping[str, Any] = MappingProxyType({})


def fix(key: str, *values: Any) -> Fixes:
    """Return one alternative of `Problem.fixes` for each value of a key; None is not a value."""
    return tuple((key, value) for value in values if value is not None)


def split_set(text: str) -> dict[str, str] | Problem:
    """Split a text of the form `section.key=value` into key and value; return the problem of any other."""
    key, equals, value = text.partition("=")
    key = key.strip()
    if equals and key:
        return {key: value}
    near, given = nearest(key, FIELDS) or "algo.learning_rate", quoted(text) or '""'
    words = f"--set {given}: expected section.key=value"
    return Problem("syntax", (), words, fix(near, FIELDS[near].default))


def parse_sets(sets: Iterable[str]) -> dict[str, str]:
    """Return texts of the form `section.key=value` by key; the last one of a key wins.

    Raises:
        HmxError: a text without a key or `=`.
    """
    changes: dict[str, str] = {}
    for found in map(split_set, sets):
        if isinstance(found, Problem):
            raise error([found])
        changes |= found
    return changes


def line(problem: Problem, values: Mapping[str, str] | None = None, origins: Mapping[str, str] | None = None) -> str:
    """Write a problem on one line: each key with its value and origin, the problem, and what works."""
    values, origins = values or {}, origins or {}
    named = []
    for key in problem.keys:
        value = quoted(problem.value or values.get(key, ""))
        origin = problem.origin or origins.get(key, "")
        pair = f"{quoted(key)}{' ' if key.startswith('--') else ' = '}{value}" if value else quoted(key)
        named.append(f"{pair} ({origin})" if origin else pair)
    words = f"{', '.join(named)}: {problem.message}" if named else problem.message
    if not problem.fixes:
        return words
    typed = _is_option(_origin(problem, origins))
    works = quoted(" or ".join(_pair(key, value, typed) for key, value in problem.fixes), _LONGEST)
    return f"{words}; did you mean {works}?" if problem.code == UNKNOWN else f"{words}; try {works}"


def error(
    problems: Sequence[Problem],
    values: Mapping[str, str] | None = None,
    origins: Mapping[str, str] | None = None,
) -> HmxError:
    """Make one error of all problems, a line each, but no more than `MAX_LINES`."""
    lines = [line(p, values, origins) for p in problems[:MAX_LINES]]
    if len(lines) == 1:
        return HmxError(lines[0], _hint(problems[0], origins or {}))
    if len(problems) > MAX_LINES:
        lines.append(f"and {len(problems) - MAX_LINES:,} more")
    request = problems[0].keys[:1] and problems[0].keys[0].startswith("--")
    head = f"{len(problems):,} problems in the {'options' if request else 'configuration'}"
    hint = "each line names what works" if request else "each line names what works; `--set KEY=VALUE` sets any key"
    return HmxError("\n".join([head, *(f"  {text}" for text in lines)]), hint)


def _origin(problem: Problem, origins: Mapping[str, str]) -> str:
    return problem.origin or (origins.get(problem.keys[0], "") if problem.keys else "")


def _is_option(origin: str) -> bool:
    return origin.startswith("--") and origin != "--set"


def _pair(key: str, value: Any, typed: bool) -> str:
    """Write a fix as `key=value`, or as the option of its key if options were typed."""
    if key.startswith("--"):
        return f"{key} {show(value)}"
    flag = FIELDS[key].flag if key in FIELDS else ""
    if not typed or not flag:
        return f"{'--set ' if typed else ''}{key}={show(value)}"
    if FIELDS[key].kind == "bool":
        return flag if value else f"leave out {flag}"
    return f"{flag} {show(value)}"


def _hint(problem: Problem, origins: Mapping[str, str]) -> str:
    """Write the first fix in the form of the bad value, since an option would not correct a wrong file."""
    if not problem.fixes:
        of_command = problem.keys[:1] and problem.keys[0].startswith("--")
        return "" if of_command else "docs/config.md lists all options"  # for "" the command line names its help
    key, value = problem.fixes[0]
    origin = _origin(problem, origins)
    section, dot, name = key.rpartition(".")
    if ".toml" in origin:
        place = origin if key in problem.keys[:1] or problem.code == UNKNOWN else origin.partition(":")[0]
        return quoted(f"in {place}, section [{section}], set {name} to {toml(value)}", _LONGEST)
    if origin == VALUES:
        return quoted(f"{key!r}: {value!r}", _LONGEST)
    if origin.startswith("HMX_"):
        return quoted(f"HMX_{key.replace('.', '_').upper()}={show(value)}", _LONGEST)
    typed = _is_option(origin)
    return quoted(f"{'--set ' if dot and not typed else ''}{_pair(key, value, typed)}", _LONGEST)
