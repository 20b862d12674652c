"""Consequence scores in one file: a row per position that was scored, and the request that they answer."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hmx.records.plain import plain_object, typed
from hmx.records.sealed_arrays import ArrayForm, FileKind, StoredArray

COLUMNS = {
    "index": ("int64", ""), "birth": ("uint32", ""), "score": ("float32", ""), "bias": ("float32", ""),
    "c_w1": ("float32", ""), "c_dmean": ("float32", ""), "c_tv": ("float32", ""), "c_js": ("float32", ""),
    "halves": ("float32", "2"), "spread": ("float32", ""), "null": ("float32", ""), "proxy": ("float32", ""),
    "ended": ("float32", ""), "steps": ("int32", ""), "action": ("int32", "KA"), "valid": ("bool", "K"),
    "divergence": ("float32", "K"), "mean": ("float32", "K"), "sd": ("float32", "K"),
}  # fmt: skip
"""Every column with its type and the axes after the rows: K actions, A agents. Schema 1 has no `bias`."""

DONE, UNDONE = NAMES = "scores.npz", "unfinished.npz"
_MAX_STEPS = 2**31 - 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScoreHeader:
    """The header of a score file."""

    request: str  # digest of everything that the scores depend on
    size: int  # rows in the file
    total: int  # rows requested
    horizon: int  # steps of a rollout
    lengths: tuple[int, ...]  # steps to the end of a sample of episodes
    seconds: float  # time spent on scoring
    compile_seconds: float  # time spent on compiling


def write(path: Path, header: ScoreHeader, columns: Mapping[str, StoredArray]) -> None:
    """Write scores atomically; `columns` has the names of `COLUMNS`."""
    KIND.write(path, plain_object(header), columns)


def _parse(body: Mapping[str, Any], forms: dict[str, ArrayForm]) -> ScoreHeader:
    header = typed(ScoreHeader, {field.name: body[field.name] for field in dataclasses.fields(ScoreHeader)})
    if header.size > header.total or not header.lengths or header.horizon == 0:
        raise TypeError
    if max(header.horizon, *header.lengths) > _MAX_STEPS or min(header.seconds, header.compile_seconds) < 0:
        raise TypeError
    sizes = {"2": 2}
    for name, (dtype, axes) in COLUMNS.items():
        form = forms.get(name)
        if form is None and not (name == "bias" and body["schema"] == 1):
            raise ValueError(f"the column {name} is missing")
        if form is None:
            continue
        found = zip(axes, form.shape[1:], strict=False)
        expected = (header.size, *(sizes.setdefault(axis, size) for axis, size in found))
        if form != ArrayForm(expected, dtype) or len(form.shape) != 1 + len(axes):
            raise ValueError(f"the column {name} is {form.dtype}{list(form.shape)} for {header.size:,} rows")
    return header


KIND = FileKind("hmx consequence scores", 2, "score file", "delete it, and run the same command again", _parse)
read = KIND.read
