"""A replay buffer in one file: the transitions of its filled slots, and what filled it.

Every array leads with the transitions, in the order of their slots. The header says which environment filled the
buffer, with every option that decides what a step does, so that transitions are not played on under other rules.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hmx.records import sealed_arrays
from hmx.records.buffer_header import RECORDS, SCHEMA, Header, from_json, to_json
from hmx.records.sealed_arrays import ArrayForm, Bytes, Kind

KIND = Kind(
    "hmx replay buffer",
    SCHEMA,
    "saved buffer",
    "`hmx train --save-buffer` and `hmx score-buffer RUN` write such files; take an intact copy",
)

_NAME = re.compile(r"(items|env_states)(/(?!\.\.?(/|$))[A-Za-z0-9_.\[\]'-]{1,100}){0,20}")


def write(path: Path, header: Header, arrays: Mapping[str, Bytes]) -> None:
    """Writes a buffer as a whole or not at all; the same content gives the same bytes.

    Args:
        path: the file; one that is there is replaced.
        header: with the forms of exactly these arrays.
        arrays: name -> its numbers, little-endian, the last index fastest.

    Raises:
        HmxError: it cannot be written (exit code 2).
    """
    forms = {name: (form, arrays[name]) for name, form in header.arrays.items()}
    sealed_arrays.write(path, KIND, to_json(header), forms)


def is_buffer(path: Path) -> bool:
    """Whether a file looks like a saved buffer; `read` says whether it is one."""
    return sealed_arrays.is_archive(path)


def read(path: Path) -> tuple[Header, dict[str, bytearray]]:
    """A buffer with all its numbers, which are compared with their checksums.

    Raises:
        NewerSchema: a later hmx wrote it (exit code 3).
        HmxError: it is missing, damaged, or no buffer (exit code 3).
    """
    return sealed_arrays.read(path, KIND, _judged)


def read_header(path: Path) -> Header:
    """What a buffer says of itself, whose arrays are there in their sizes; errors as of `read`."""
    return sealed_arrays.read(path, KIND, _judged, whole=False)[0]


def _judged(body: Mapping[str, Any], forms: dict[str, ArrayForm]) -> Header:
    """The header, unless it contradicts itself."""
    header = from_json(body, forms)
    if not header.size <= header.capacity or header.position >= max(header.capacity, 1) or header.num_envs < 1:
        raise ValueError(f"a ring of {header.capacity:,} slots, {header.size:,} filled, next {header.position:,}")
    for name, form in forms.items():
        if name in RECORDS:
            if form != ArrayForm((header.size,), RECORDS[name]):
                raise ValueError(f"{name} is {form.dtype}{list(form.shape)} for {header.size:,} transitions")
        elif _NAME.fullmatch(name) is None:
            raise ValueError(f"an array of the name {name}")
        elif form.shape[:1] != (header.size,):
            raise ValueError(f"{name} has the shape {list(form.shape)} for {header.size:,} transitions")
    missing = [name for name in RECORDS if name not in forms]
    if missing:
        raise ValueError(f"the array {missing[0]} is missing")
    return header
