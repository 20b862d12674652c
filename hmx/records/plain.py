"""Typed records as JSON values: one rule for every result that a command prints."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path

JsonValue = None | bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"]


def plain(value: object) -> JsonValue:
    """Return a JSON value of a record of any depth.

    Dataclasses and named tuples become objects whose keys are the field names, in order; a field with the metadata
    `{"json": False}` is left out. Sequences and sets become arrays, paths and other mappings' keys become strings,
    NumPy scalars and arrays become numbers and nested arrays. Numbers that are not finite become null.

    Raises:
        TypeError: the value, or a part of it, has no JSON form.
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [f.name for f in dataclasses.fields(value) if f.metadata.get("json", True)]
        return {name: plain(getattr(value, name)) for name in fields}
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
