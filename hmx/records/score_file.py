"""Consequence scores in one file: what is known of every position scored, and what was asked for."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hmx.records import sealed_arrays
from hmx.records.sealed_arrays import ArrayForm, Bytes, Kind

SCHEMA = 1
KIND = Kind("hmx consequence scores", SCHEMA, "file of scores", "delete it, and score anew with the same command")
_MAX_STEPS = 2**31 - 1
FIELDS = ("request", "size", "total", "horizon", "lengths", "seconds", "compile_seconds")


def write(path: Path, body: Mapping[str, Any], arrays: Mapping[str, tuple[ArrayForm, Bytes]]) -> None:
    """Writes scores as a whole or not at all.

    Args:
        path: the file.
        body: `FIELDS`, plain values: digest of the request, rows there and wanted, steps of a rollout, what a sample
            of rollouts took to end, seconds spent.
        arrays: by name, each leading with the rows.

    Raises:
        HmxError: it cannot be written (exit code 2).
    """
    sealed_arrays.write(path, KIND, {name: body[name] for name in FIELDS}, arrays)


def read(path: Path, whole: bool = True) -> tuple[dict[str, Any], dict[str, ArrayForm], dict[str, bytearray]]:
    """What was asked for, the forms of the arrays, and the arrays.

    Raises:
        HmxError: it is missing, damaged, or no such file (exit code 3).
    """
    (body, forms), arrays = sealed_arrays.read(path, KIND, _judged, whole)
    return body, forms, arrays


def _judged(body: Mapping[str, Any], forms: dict[str, ArrayForm]) -> tuple[dict[str, Any], dict[str, ArrayForm]]:
    found = {name: body[name] for name in FIELDS}
    kinds = {"request": str, "size": int, "total": int, "horizon": int, "lengths": list}
    if any(type(found[name]) is not kind for name, kind in kinds.items()) or not 0 <= found["size"] <= found["total"]:
        raise TypeError
    if not found["lengths"] or any(type(x) is not int or not 0 <= x <= _MAX_STEPS for x in found["lengths"]):
        raise TypeError
    if not 0 < found["horizon"] <= _MAX_STEPS:
        raise TypeError
    spent = [found[name] for name in ("seconds", "compile_seconds")]
    if any(type(x) not in (int, float) or not 0 <= x <= sys.float_info.max for x in spent):
        raise TypeError
    if any(form.shape[:1] != (found["size"],) for form in forms.values()):
        raise ValueError(f"an array of it is not of {found['size']:,} rows")
    return found, forms
