"""The reference policy of a run (`ppo.ref`) in one file, so that the run does not depend on where it came from."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hmx.records import sealed_arrays
from hmx.records.plain import plain_object, typed
from hmx.records.sealed_arrays import ArrayForm, FileKind, StoredArray

KIND = FileKind("hmx reference policy", 1, "reference policy", "put back the file from a copy of the run")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReferenceHeader:
    """The header of a reference policy."""

    run_id: str  # of the run that the file is in
    source: str  # path of the checkpoint or of the exported policy that it is a copy of


def write(path: Path, header: ReferenceHeader, arrays: Mapping[str, StoredArray]) -> None:
    """Write a reference policy atomically; the same content gives the same bytes."""
    sealed_arrays.write(path, KIND, plain_object(header), arrays)


def read(path: Path) -> tuple[ReferenceHeader, dict[str, StoredArray]]:
    """Read a reference policy, and compare it with its checksums; errors as of `sealed_arrays.read`."""
    return sealed_arrays.read(path, KIND, _parse)


def copy(path: Path, target: Path, run_id: str) -> None:
    """Copy a reference policy into the folder of another run, with its id; errors as of `read` and `write`."""
    header, arrays = read(path)
    write(target, dataclasses.replace(header, run_id=run_id), arrays)


def check(path: Path) -> ReferenceHeader:
    """Compare a file with its checksums, with little memory; errors as of `sealed_arrays.read`."""
    return sealed_arrays.read(path, KIND, _parse, in_memory=False)[0]


def _parse(body: Mapping[str, Any], forms: dict[str, ArrayForm]) -> ReferenceHeader:
    return typed(ReferenceHeader, {field.name: body[field.name] for field in dataclasses.fields(ReferenceHeader)})
