"""Checkpoint folders, readable without JAX: which there are, which are whole, and what is in them.

A checkpoint is a folder named by its update, with a `manifest.json` that is written last and lists every other file
with its size and SHA-256. A folder without a manifest, or with a file of another size, is not complete.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hmx.errors import ExitCode, HmxError
from hmx.records import atomic
from hmx.records.artefact import read_json

SCHEMA = 1
MANIFEST = "manifest.json"


class Leaf(NamedTuple):
    """One array of the saved state."""

    path: str
    shape: tuple[int, ...]
    dtype: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class File:
    """One file of a checkpoint, by its path inside the folder."""

    path: str
    size: int
    sha256: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a checkpoint holds, and what a configuration must share with it."""

    schema: int = SCHEMA
    update: int
    env_steps: int = 0
    shape_digest: str = ""
    config_digest: str = ""
    leaves: tuple[Leaf, ...] = ()
    files: tuple[File, ...] = ()


def listing(folder: Path) -> list[Path]:
    """The checkpoint folders, oldest first by number, complete or not; everything else is passed over."""
    try:
        found = [p for p in folder.iterdir() if p.name.isascii() and p.name.isdigit() and p.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(found, key=lambda p: (int(p.name), p.name))


def complete(folder: Path) -> list[Path]:
    """The checkpoints whose manifest is there and whose files all have their size, oldest first."""
    return [p for p in listing(folder) if not faults(p, deep=False)]


def newest_intact(folder: Path) -> tuple[Path | None, dict[Path, list[str]]]:
    """The newest checkpoint whose files all have their SHA-256, and what is wrong with each newer one."""
    broken: dict[Path, list[str]] = {}
    for path in reversed(listing(folder)):
        found = faults(path)
        if not found:
            return path, broken
        broken[path] = found
    return None, broken


def write_manifest(
    checkpoint: Path,
    update: int,
    env_steps: int = 0,
    shape_digest: str = "",
    config_digest: str = "",
    leaves: Sequence[Leaf] = (),
) -> Manifest:
    """Hashes every file of a checkpoint and writes its manifest; nothing may be added to the folder afterwards.

    Raises:
        OSError: a file cannot be read, or the manifest cannot be written.
    """
    manifest = Manifest(
        update=update,
        env_steps=env_steps,
        shape_digest=shape_digest,
        config_digest=config_digest,
        leaves=tuple(Leaf(leaf.path, tuple(leaf.shape), leaf.dtype) for leaf in leaves),
        files=tuple(
            File(path=p.relative_to(checkpoint).as_posix(), size=p.stat().st_size, sha256=_sha256(p))
            for p in sorted(checkpoint.rglob("*"))
            if p.is_file() and p != checkpoint / MANIFEST
        ),
    )
    data = dataclasses.asdict(manifest)
    data["leaves"] = [leaf._asdict() for leaf in manifest.leaves]
    atomic.write_text(checkpoint / MANIFEST, json.dumps(data, indent=1) + "\n")
    return manifest


def read_manifest(checkpoint: Path) -> Manifest:
    """The manifest of a checkpoint.

    Raises:
        HmxError: it is missing, damaged or of a newer schema (exit code 3).
    """
    path = checkpoint / MANIFEST
    hint = "another checkpoint of the run may be intact; `hmx resume` takes the newest that is"
    data = read_json(path, SCHEMA, f"checkpoint {checkpoint} is not complete: no {MANIFEST}", hint)
    try:
        return _manifest(data)
    except (TypeError, KeyError, ValueError, AttributeError):
        raise HmxError(f"{path} is damaged: not a manifest", hint, ExitCode.ARTEFACT) from None


def _manifest(data: Mapping[str, Any]) -> Manifest:
    return Manifest(
        schema=int(data["schema"]),
        update=int(data["update"]),
        env_steps=int(data["env_steps"]),
        shape_digest=str(data["shape_digest"]),
        config_digest=str(data["config_digest"]),
        leaves=tuple(Leaf(str(x["path"]), tuple(int(n) for n in x["shape"]), str(x["dtype"])) for x in data["leaves"]),
        files=tuple(File(path=str(x["path"]), size=int(x["size"]), sha256=str(x["sha256"])) for x in data["files"]),
    )


def faults(checkpoint: Path, deep: bool = True) -> list[str]:
    """What is wrong with a checkpoint, one line each; empty for an intact one.

    Args:
        checkpoint: its folder.
        deep: whether to read every file and compare its SHA-256, or only the sizes.
    """
    try:
        manifest = read_manifest(checkpoint)
    except HmxError as problem:
        return [problem.message]
    found = []
    if checkpoint.name.isdigit() and int(checkpoint.name) != manifest.update:
        found.append(f"the manifest is of update {manifest.update}")
    for file in manifest.files:
        path = checkpoint / file.path
        try:
            size = path.stat().st_size
            if size != file.size:
                found.append(f"{file.path}: {size:,} bytes instead of {file.size:,}")
            elif deep and _sha256(path) != file.sha256:
                found.append(f"{file.path}: the content has changed")
        except OSError as problem:
            found.append(f"{file.path}: {(problem.strerror or str(problem)).lower()}")
    return found


def leaf_differences(saved: Sequence[Leaf], wanted: Sequence[Leaf]) -> list[str]:
    """One line per leaf that is missing, unknown, or of another shape or dtype."""
    old, new = ({leaf.path: leaf for leaf in leaves} for leaves in (saved, wanted))
    lines = []
    for path in sorted(old.keys() | new.keys()):
        if path not in new:
            lines.append(f"{path}: saved, but not part of the state")
        elif path not in old:
            lines.append(f"{path}: part of the state, but not saved")
        elif old[path] != new[path]:
            a, b = old[path], new[path]
            lines.append(f"{path}: saved as {a.dtype}{list(a.shape)}, needed as {b.dtype}{list(b.shape)}")
    return lines


def surplus(folder: Path, keep: int) -> list[Path]:
    """The checkpoints to delete so that the newest `keep` >= 1 complete ones are left, oldest first.

    Incomplete ones older than the newest complete one are surplus too.
    """
    if keep < 1:
        raise ValueError("at least one checkpoint must be kept")
    kept = complete(folder)[-keep:]
    return [p for p in listing(folder) if kept and p not in kept and int(p.name) < int(kept[-1].name)]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
