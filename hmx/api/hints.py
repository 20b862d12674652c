"""Errors as a Python program reads them: arguments and calls in place of options and commands."""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import re
import shlex
import sys
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from hmx.config.coerce import BadValue, coerce
from hmx.config.fields import FIELDS, Field, fields_of
from hmx.errors import HmxError
from hmx.gates.records import GateRequest
from hmx.registry.trust import ACCEPT_FLAG, TRUST_FLAG
from hmx.study.request import SearchRequest

P = ParamSpec("P")
T = TypeVar("T")
Parameters = Mapping[str, inspect.Parameter]

_CALLS = {
    "train": "train", "resume": "resume", "fork": "fork", "evaluate": "evaluate", "compare": "compare",
    "check-env": "check_env", "study new": "new_study", "study work": "run_study", "study status": "study_status",
    "study report": "study_report", "study best": "best_config", "study add": "extend_study",
    "study verify": "verify_study", "gate new": "new_gate", "gate try": "gate", "gate status": "gate_status",
    "gate verify": "verify_gate",
}  # fmt: skip
"""Command -> function of `import hmx`; other commands have none, and stay as they are."""

_NAMES = {TRUST_FLAG: "trust", "--policy": "policies"}
_FLAGGED = {field.flag: field for field in FIELDS.values() if field.flag}
_SEARCH, _GATE = fields_of(SearchRequest), fields_of(GateRequest)
_NESTED = {"search": _SEARCH, "options": _GATE}
"""Parameters that take options of a command by name."""

# An option has its value after it, unless it is a switch; a command one word, `compare` several, `train` none.
_SWITCHES = [flag for flag, field in {**_FLAGGED, **_SEARCH, **_GATE}.items() if field.kind == "bool"]
_MORE_SWITCHES = ("--force", "--abandon", "--other-versions", TRUST_FLAG, ACCEPT_FLAG)
_SWITCH = rf"(?:{'|'.join([*_SWITCHES, *_MORE_SWITCHES])})(?![\w-])"
_VALUE = r"(?:'[^']*'|[^\s;&'`-]|(?<=[\w=./])-|-(?=[\d.]))+(?<![.,:;?)`])"
_OPTION = rf"(?:{_SWITCH}|--[a-z][a-z-]+(?: {_VALUE})?)"
_OPTIONS = re.compile(rf"(?<![\w=-]){_OPTION}(?: {_OPTION})*")
_WORDS = rf"(?:(?<=compare)(?: {_VALUE})*|(?<!train)(?: {_VALUE})?|)"
_COMMAND = re.compile(rf"\bhmx ({'|'.join(_CALLS)})(?![\w-])({_WORDS})((?: {_OPTION})*)")


def for_python(function: Callable[P, T]) -> Callable[P, T]:
    """Make the errors of a function name its arguments, and functions in place of commands."""

    @functools.wraps(function)
    def call(*args: P.args, **given: P.kwargs) -> T:
        try:
            return function(*args, **given)
        except HmxError as error:
            error.message, error.hint = in_python(error.message, function), in_python(error.hint, function)
            error.args = (error.message,)
            raise

    return call


def in_python(text: str, function: Callable[..., object]) -> str:
    """Write the options of a text as arguments of a function, and commands as calls."""
    text = _COMMAND.sub(_call, text)
    known = inspect.signature(function).parameters
    if mapping := _mapping_of(known):
        text = re.sub(r"\(--[a-z][a-z-]+\)", f"({mapping})", text)  # where a value comes from
    parts = re.split(r"(`?\bhmx [a-z][^;`]*)", text)  # commands without a function keep their options
    parts[::2] = [_OPTIONS.sub(lambda found: _arguments(found[0], known), part) for part in parts[::2]]
    return "".join(parts).replace(" && ", ", then ")


def _call(found: re.Match[str]) -> str:
    name = _CALLS[found[1]]
    known = inspect.signature(getattr(sys.modules["hmx"], name)).parameters  # imports what it needs, only now
    given = _given(found[3], known)
    if given is None:
        return found[0]
    arguments, settings = given
    parts = [_literal(word, text=True) for word in shlex.split(found[2])]
    values, file = [_mapping(settings)] if settings else [], arguments.pop("file", "")
    if file:
        values = [f"hmx.load_config({', '.join([*values, f'file={file}'])})"]
    parts += [f"{_mapping_of(known)}={value}" for value in values]
    return f"hmx.{name}({', '.join([*parts, *(f'{key}={value}' for key, value in arguments.items())])})"


def _arguments(text: str, known: Parameters) -> str:
    given = _given(text, known, bare=True)
    if given is None:
        return f"{text} (command line)"
    arguments, settings = given
    entries = [f"{key}: {value}" if value else key for key, value in settings.items()]
    return ", ".join([*entries, *(f"{key}={value}" if value else key for key, value in arguments.items())])


def _given(text: str, known: Parameters, bare: bool = False) -> tuple[dict[str, str], dict[str, str]] | None:
    """Return the arguments and the settings that options stand for, as source texts; None if one has no counterpart.

    With `bare`, an option may lack its value, since the text is about it; its source is then empty.
    """
    arguments: dict[str, str] = {}
    settings: dict[str, str] = {}
    nested: dict[str, dict[str, str]] = {}
    mapping = _mapping_of(known)
    for flag, *words in (shlex.split(option) for option in re.findall(_OPTION, text)):
        word = " ".join(words)
        name = _NAMES.get(flag, flag[2:].replace("-", "_"))
        group = next((one for one, fields in _NESTED.items() if one in known and flag in fields), "")
        field = _FLAGGED.get(flag) or _NESTED.get(group, _SEARCH).get(flag)
        value = _literal(word, field) if word else ""
        if name in known:
            value = "True" if known[name].default is False else value
            arguments[name] = f"[{value}]" if name == "policies" else value
            if flag == "--space" and word:
                arguments[name] = _mapping({repr(word.partition("=")[0]): repr(word.partition("=")[2])})
        elif flag in ("--set", "--config") and mapping:
            if flag == "--config" and mapping == "settings" and "space" not in known:
                arguments["file"] = value
                continue
            key, equals, after = word.partition("=")
            if flag == "--config" or not (equals or bare):
                return None
            settings[_literal(key, text=True) if key else "set"] = _literal(after, FIELDS.get(key)) if equals else ""
        elif field is not None and (group or mapping):
            value = "True" if field.kind == "bool" else value
            if group and (value or not bare):
                nested.setdefault(group, {})[repr(field.name)] = value
            else:
                settings[repr(field.key if flag in _FLAGGED else field.name)] = value
        else:
            return None
    if not bare and not all([*arguments.values(), *settings.values()]):
        return None
    return {**arguments, **{name: _mapping(inner) for name, inner in nested.items()}}, settings


def _mapping_of(known: Parameters) -> str:
    """Return the parameter that takes values by dotted key; empty without one."""
    return next((name for name in ("settings", "changes", "values") if name in known), "")


def _mapping(entries: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{key}: {value}" for key, value in entries.items()) + "}"


def _literal(word: str, field: Field | None = None, text: bool = False) -> str:
    """Return the source of the value that a word of a command line stands for; a placeholder such as RUN stays."""
    if re.fullmatch(r"[A-Z]{1,9}", word):
        return word
    value: Any = word
    with contextlib.suppress(BadValue, ValueError, SyntaxError):
        value = word if text else ast.literal_eval(word) if field is None else coerce(field, word, text=True)
    return repr(list(value) if isinstance(value, tuple) else value)
