"""Values into the types of the schema: from Python and TOML values, and from text."""

from __future__ import annotations

import math
from typing import Any

from hmx.config.fields import Field
from hmx.config.names import nearest

_TRUE = {"true", "yes", "on", "1"}
_FALSE = {"false", "no", "off", "0"}
_MAX_INT = 2**53 - 1  # what JSON and every float64 can say exactly
_MAX_BITS = 1024  # of an integer in a message; Python itself refuses to write more than 4,300 digits


class BadValue(ValueError):
    """A value that does not fit; the text says what would."""

    def __init__(self, message: str, suggestion: str) -> None:
        super().__init__(message)
        self.message = message
        self.suggestion = suggestion


def coerce(field: Field, value: Any, text: bool = False) -> Any:
    """The value in the type of the field.

    Args:
        field: the option that the value is for.
        value: what was given.
        text: whether the value is text to be read (`"1e6"`, `"256,256"`, `"true"`); otherwise a string fits
            only an option that is a string.

    Raises:
        BadValue: wrong type, not finite, or not one of the choices.
    """
    if text and isinstance(value, str):
        value = _read(field, value)
    result = _fit(field, value)
    if field.choices and result not in field.choices:
        near = nearest(str(result), [str(c) for c in field.choices])
        listed = ", ".join(str(c) for c in field.choices)
        raise BadValue(f"is not one of {listed}", f"{field.key}={near if near is not None else field.default}")
    return result


def show(value: Any) -> str:
    """A value as one would type it after `--set key=`; no option takes what is nested deeper than a list."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (tuple, list)):
        return ",".join("[...]" if isinstance(v, (tuple, list, dict)) else show(v) for v in value)
    if isinstance(value, dict):
        return "{...}"
    if isinstance(value, int) and value.bit_length() > _MAX_BITS:
        return f"a number of {value.bit_length():,} bits"
    return str(value)


def _bad(field: Field, message: str, value: Any = None) -> BadValue:
    works = field.default if value is None else value
    return BadValue(message, f"{field.key}={show(works)}")


def _read(field: Field, text: str) -> Any:
    """Text to the nearest Python value; what cannot be read stays text and fails later with the field's words."""
    stripped = text.strip()
    if field.kind == "str":
        return text
    if field.kind == "bool":
        low = stripped.lower()
        return True if low in _TRUE else False if low in _FALSE else text
    if field.kind.startswith("tuple"):
        inner = stripped
        if inner[:1] + inner[-1:] in ("[]", "()"):
            inner = inner[1:-1]
        return [_number(part) for part in inner.rstrip(", ").split(",")] if inner.strip() else []
    return _number(stripped)


def _number(text: str) -> Any:
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return text


def _fit(field: Field, value: Any) -> Any:
    kind = field.kind
    if kind == "bool":
        if not isinstance(value, bool):
            raise _bad(field, "must be true or false")
        return value
    if kind == "str":
        return _string(field, value)
    if kind == "int":
        return _whole(field, value)
    if kind == "float":
        return _real(field, value)
    if kind == "tuple[int, ...]":
        if not isinstance(value, (list, tuple)):
            raise _bad(field, "must be a list of whole numbers")
        return tuple(_whole(field, v) for v in value)
    raise AssertionError(f"{field.key}: no rule for the type {kind}")


def _string(field: Field, value: Any) -> str:
    if not isinstance(value, str):
        raise _bad(field, "must be text in quotes", field.default or "a-name")
    if any(0xD800 <= ord(c) <= 0xDFFF for c in value):
        raise _bad(field, "has bytes that are not UTF-8", field.default or "a-name")
    return value


def _whole(field: Field, value: Any) -> int:
    words = "must be a list of whole numbers" if field.kind.startswith("tuple") else "must be a whole number"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _bad(field, words)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise _bad(field, words)
        if value != int(value):
            raise _bad(field, words, None if field.kind.startswith("tuple") else round(value) or field.default)
    if abs(value) > _MAX_INT:
        raise _bad(field, f"must be at most {_MAX_INT:,} in size")
    return int(value)


def _real(field: Field, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _bad(field, "must be a number")
    try:
        result = float(value)
    except OverflowError:
        result = math.inf
    if not math.isfinite(result):
        raise _bad(field, "must be a finite number")
    return result
