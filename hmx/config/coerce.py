"""Convert Python and TOML values, and text, to the types and ranges of the schema."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hmx.config.fields import Field
from hmx.errors import nearest

_TRUE = {"true", "yes", "on", "1"}
_FALSE = {"false", "no", "off", "0"}
_MAX_INT = 2**53 - 1  # the largest integer that JSON and every float64 hold exactly
_MAX_BITS = 1024  # of an integer in a message; Python itself refuses to write more than 4,300 digits
_SUFFIXED = re.compile(r"([0-9][0-9_]*(?:\.[0-9]*)?|\.[0-9]+)([kmg])", re.IGNORECASE)
_POWERS = {"k": 3, "m": 6, "g": 9}
_LONGEST = 4000  # digits that Python converts to a number without an error


class BadValue(ValueError):
    """A value that does not fit its option, and one that does (None if no value does)."""

    def __init__(self, message: str, works: object) -> None:
        super().__init__(message)
        self.message = message
        self.works = works


def _good(field: Field, given: Any = None) -> Any:
    """Return a value that the option takes: what the whole text of `given` stands for, the default, or the lowest."""
    text = show(given)
    if given is not None and _read(field, text) != text:
        return fitting(field, text)
    return field.ge if field.default is None else field.default


def fitting(field: Field, text: str) -> Any:
    """Return the value of an option that a text stands for, or one that the option takes if it does not take that."""
    try:
        value = coerce(field, text, text=True)
        if value is not None:
            check_range(field, value)
    except BadValue as bad:
        return bad.works
    return value


def coerce(field: Field, value: Any, text: bool = False) -> Any:
    """Convert a value to the type of the field.

    With `text`, text is read (`"1e6"`, `"20k"`, `"256,256"`, `"true"`); otherwise a string fits only an option that is
    a string.

    Raises:
        BadValue: wrong type, not finite, or not one of the choices.
    """
    if value is None and field.optional:
        return None
    if text and field.parse is not None:
        return field.parse(value)
    if text and isinstance(value, str):
        value = _read(field, value)
        if value is None:
            return None
    result = _fit(field, value)
    if field.choices and result not in field.choices:
        if result in field.gone:
            raise BadValue("the value was removed", field.default)
        near = nearest(str(result), [str(c) for c in field.choices])
        listed = ", ".join(str(c) for c in field.choices)
        raise BadValue(f"is not one of {listed}", near if near is not None else field.default)
    return result


def check_range(field: Field, value: object) -> None:
    """Check that a value of the right type lies in the range of its field; raise a BadValue if not."""
    values = value if isinstance(value, tuple) else (value,)
    if not values and field.default:
        raise BadValue("needs at least one value", field.default)
    near = [_clamped(field, v) for v in values]
    if near != list(values):
        raise BadValue(f"must be {range_words(field)}", tuple(near) if isinstance(value, tuple) else near[0])


def range_words(field: Field) -> str:
    """Return the range of an option as text, such as `from 0 to 1`; empty if it has none."""
    if field.ge is None and field.gt is None:
        return ""
    if field.gt is not None:
        return f"above {field.gt:,}" + ("" if field.le is None else f" and at most {field.le:,}")
    return f"{field.ge or 0:,} or more" if field.le is None else f"from {field.ge or 0:,} to {field.le:,}"


def _clamped(field: Field, value: Any) -> Any:
    if not isinstance(value, (int, float)):
        return value
    if field.le is not None and value > field.le:
        return type(value)(field.le)
    if field.gt is not None and value <= field.gt:
        return field.default
    if field.ge is None or value >= field.ge:
        return value
    return type(value)(field.ge) if field.default is None or isinstance(field.default, tuple) else field.default


def show(value: object) -> str:
    """Write a value as the user would type it after `--set key=`; lists nested in lists are abbreviated."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (tuple, list)):
        return ",".join("[...]" if isinstance(v, (tuple, list, dict)) else show(v) for v in value)
    if isinstance(value, dict):
        return "{...}"
    if isinstance(value, int) and value.bit_length() > _MAX_BITS:
        return f"a number of {value.bit_length():,} bits"
    return str(value)


def toml(value: object) -> str:
    """Write a plain value as TOML, which spells it as JSON does, apart from one character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def show_all(values: Mapping[str, object]) -> str:
    """Write dotted keys with their values: a.b = 1, c.d = true."""
    return ", ".join(f"{key} = {show(value)}" for key, value in values.items())


def _read(field: Field, text: str) -> Any:
    """Convert text to the nearest Python value; unreadable text stays text, which `_fit` then refuses."""
    stripped = text.strip()
    if stripped in field.words:
        return field.words[stripped]
    if field.kind == "bool":
        low = stripped.lower()
        return True if low in _TRUE else False if low in _FALSE else text
    if field.kind == "tuple[int, ...]":
        inner = stripped
        if inner[:1] + inner[-1:] in ("[]", "()"):
            inner = inner[1:-1]
        return [typed_number(part) for part in inner.rstrip(", ").split(",")] if inner.strip() else []
    return typed_number(stripped) if field.kind in ("int", "float") else text


def _fit(field: Field, value: Any) -> Any:
    if field.kind == "bool":
        if not isinstance(value, bool):
            raise BadValue("must be true or false", _good(field, value))
        return value
    if field.kind == "str":
        if not isinstance(value, str):
            text = show(value) if isinstance(value, (int, float)) and not field.choices else field.default
            raise BadValue("must be text in quotes", text or "a-name")
        if any(0xD800 <= ord(c) <= 0xDFFF for c in value):
            raise BadValue("has bytes that are not UTF-8", field.default or "a-name")
        return value
    if field.kind in ("tuple[str, ...]", "Path"):
        return tuple(value) if field.repeatable else Path(value)
    if field.kind == "int":
        return _whole(field, value)
    if field.kind == "float":
        return _real(field, value)
    if field.kind == "tuple[int, ...]":
        if not isinstance(value, (list, tuple)):
            raise BadValue("must be a list of whole numbers", _good(field, value))
        return tuple(_whole(field, v) for v in value)
    raise AssertionError(f"{field.key}: no rule for the type {field.kind}")


def _whole(field: Field, value: Any) -> int:
    listed = field.kind != "int"
    words = " or ".join(["must be a list of whole numbers" if listed else "must be a whole number", *field.words])
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise BadValue(words, _good(field, None if listed else value))
    if isinstance(value, float) and not math.isfinite(value):
        raise BadValue(words, _good(field))
    if value != int(value):
        raise BadValue(words, _good(field) if listed else _clamped(field, round(value)))
    if abs(value) > _MAX_INT:
        raise BadValue(f"must be at most {_MAX_INT:,} in size", _good(field))
    return int(value)


def _real(field: Field, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise BadValue(" or ".join(["must be a number", *field.words]), _good(field, value))
    try:
        result = float(value)
    except OverflowError:
        result = math.inf
    if not math.isfinite(result):
        raise BadValue("must be a finite number", _good(field))
    return result


def typed_number(text: str) -> int | float | str:
    """Return the number that a text stands for, or the text itself if it is not a finite number.

    `_` separates digits, and the suffixes k, M and G stand for thousands, millions and billions: 20k is 20000.
    The result is an `int` if the text is a whole number without an exponent.
    """
    digits = text.strip()
    if len(digits) > _LONGEST and digits.isdecimal():
        return int(10**_LONGEST)
    power = 0
    if parts := _SUFFIXED.fullmatch(digits):
        digits, power = parts[1], _POWERS[parts[2].lower()]
    try:
        return int(digits) * int(10**power)
    except ValueError:
        pass
    try:
        value = float(f"{digits}e{power}" if power else digits)
    except ValueError:
        return text
    if not math.isfinite(value):
        return text
    return int(value) if power and value.is_integer() else value
