"""The running episodes of simulators, in a checkpoint: what a resumed run needs to continue them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hmx.records import sealed_arrays
from hmx.records.sealed_arrays import ArrayForm, FileKind, StoredArray

NAME = "episodes.npz"
NOT_REPLAYED = "running episodes could not be replayed"
"""What the note of a resumption says of a simulator that is not deterministic."""

KIND = FileKind("hmx-episodes", 1, "file of running episodes", "another checkpoint of the run may be intact")


def write(path: Path, arrays: Mapping[str, StoredArray]) -> None:
    """Write the arrays of running episodes."""
    sealed_arrays.write(path, KIND, {}, arrays)


def read(path: Path) -> dict[str, StoredArray]:
    """Read the arrays of running episodes.

    Raises:
        HmxError: the file is missing, damaged, or another kind of file (exit code 3).
    """
    return sealed_arrays.read(path, KIND, _accept)[1]


def _accept(body: Mapping[str, Any], forms: dict[str, ArrayForm]) -> None:
    if set(forms) != {"number", "steps", "digest", "actions", "state_bytes", "states"}:
        raise ValueError("it holds other arrays than those of episodes")
