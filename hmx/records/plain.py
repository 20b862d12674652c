"""Typed records as JSON values and back: one rule for the output of commands and for files."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import sys
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

T = TypeVar("T")
Makers = Mapping[Any, Callable[[Any], Any]]
_LONGEST_REPR = 60  # characters of a value
JsonValue = None | bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"]


def plain(value: object) -> JsonValue:
    """Return a JSON value of a record of any depth.

    Dataclasses and named tuples become objects whose keys are the field names, in order; a field with the metadata
    `{"json": False}` is omitted, and one with `{"json": function}` is written as the function returns it. Sequences
    and sets become arrays, paths and other mappings' keys become strings, NumPy scalars and arrays become numbers and
    nested arrays. Numbers that are not finite become null.

    Raises:
        TypeError: the value, or a part of it, has no JSON form.
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        shown = {f.name: f.metadata.get("json", True) for f in dataclasses.fields(value)}
        return {
            name: plain(form(getattr(value, name)) if callable(form) else getattr(value, name))
            for name, form in shown.items()
            if form
        }
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {name: plain(getattr(value, name)) for name in value._fields}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    raise TypeError(f"no JSON form of {type(value).__name__}")


def plain_object(value: object) -> dict[str, JsonValue]:
    """Return `plain(value)` of a record, which is an object."""
    found = plain(value)
    if not isinstance(found, dict):
        raise TypeError(f"{type(value).__name__} is not a record")
    return found


class ShortRepr:
    """A record whose `repr` has one short line: longer values are counted. Its dataclass needs `repr=False`."""

    def __repr__(self) -> str:
        fields = dataclasses.fields(self)  # type: ignore[arg-type]  # of a dataclass
        return f"{type(self).__name__}({', '.join(f'{f.name}={_brief(getattr(self, f.name))}' for f in fields)})"


def _brief(value: object) -> str:
    if isinstance(value, (tuple, list, set, frozenset, Mapping)) and value:
        return f"<{len(value)} item{'s' if len(value) > 1 else ''}>"
    if isinstance(value, Path):
        return repr(str(value))
    text = repr(value)
    return text if len(text) <= _LONGEST_REPR else f"<{type(value).__name__}>"


class JsonResult:
    """A record that a command prints: a schema number, then its fields."""

    schema_number: ClassVar[int] = 1

    def to_json(self) -> dict[str, JsonValue]:
        """Return a JSON object with stable keys."""
        return {"schema": self.schema_number, **plain_object(self)}


def typed(kind: type[T], value: object, made: Makers = MappingProxyType({})) -> T:
    """Return the value of a type from its JSON value: the inverse of `plain`, for files of any origin.

    Types are those of plain fields, and dataclasses and named tuples of them. Whole numbers are 0 or more, numbers are
    finite. Fields that are missing take their defaults. `made` has functions for more types.

    Raises:
        TypeError: it is a value of another type, lacks a field, or has an unknown one.
    """
    found: T = _typed(kind, value, made)
    return found


@functools.cache
def _taken_apart(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return the origin and the arguments of a generic type; a study reads thousands of records of a few types."""
    return typing.get_origin(kind), typing.get_args(kind)


def _typed(kind: Any, value: Any, made: Makers) -> Any:
    if type(value) is kind and kind in (bool, str):
        return value
    origin, args = _taken_apart(kind)
    if (origin or kind) in made:
        return made[origin or kind](value)
    if origin in (typing.Union, types.UnionType):
        for arg in args:
            with contextlib.suppress(TypeError):
                return _typed(arg, value, made)
    if kind is float and type(value) in (int, float) and abs(value) <= sys.float_info.max:  # an int may exceed it
        return float(value)
    if kind is Path and isinstance(value, str):
        return Path(value)
    if (
        kind is object
        or isinstance(kind, typing.ForwardRef)  # the recursion of JsonValue
        or (origin is typing.Literal and value in args)
        or (kind is types.NoneType and value is None)
        or (type(value) is kind is int and value >= 0)
    ):
        return value
    if origin is tuple and isinstance(value, list):
        return tuple(_typed(args[0], item, made) for item in value)
    if origin in (list, dict, Mapping) and isinstance(value, origin):
        if origin is list:
            return value
        return {_key(args[0], key): _typed(args[1], item, made) for key, item in value.items()}
    if hasattr(kind, "__annotations__") and isinstance(value, dict):
        hints = _hints(kind)
        return kind(**{name: _typed(hints.get(name, object), item, made) for name, item in value.items()})
    raise TypeError(f"{value!r:.80} is not {getattr(kind, '__name__', kind)}")


def _key(kind: Any, key: str) -> Any:
    return _typed(kind, int(key) if kind is int and key.isdecimal() else key, {})


@functools.cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    return typing.get_type_hints(kind)
