"""Find, check and describe checkpoint folders, without JAX.

A checkpoint is a folder named after its update. Its `manifest.json` is written last and lists every other file with its
size and SHA-256. It has copies of the run's run.toml and meta.json, so that either may be lost. A folder without a
manifest, or with a file of another size, is incomplete.

Schemas of the manifest: 1 had no score, no mark of the metrics, no copies and no seal; 2 had no run id and its
state was not nested (`hmx.runs.checkpoint`).
"""

from __future__ import annotations

import dataclasses
import functools
import math
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from hmx.config import files
from hmx.errors import ExitCode, HmxError
from hmx.records import artefact, atomic
from hmx.records.jsonl import Mark
from hmx.records.plain import plain_object, typed

SCHEMA = 3
MANIFEST = "manifest.json"
MAX_ELEMENTS = 1 << 36  # maximum of one array; a manifest that claims more is refused
_MAX_RANK = 64  # maximum dimensions of one array
_MAX_PATH = 1000  # maximum characters of a file's path inside the checkpoint

_SEALED_FROM = 2


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
class CheckpointInfo:
    """Facts about a checkpoint in addition to its state and files."""

    run_id: str = ""  # of the run that wrote it; "" before schema 3
    env_steps: int = 0  # per seed
    shape_digest: str = ""  # of the configuration, see `hmx.config.codec`
    config_digest: str = ""
    score: float | None = None  # mean episode return since the previous checkpoint; None if no episode ended
    metrics: Mark | None = None  # the part of metrics.jsonl that belongs to the state


@dataclasses.dataclass(frozen=True, kw_only=True)
class Manifest(CheckpointInfo):
    """The content of a checkpoint, and what a configuration must share with it."""

    schema: int = SCHEMA
    update: int
    leaves: tuple[Leaf, ...] = ()
    files: tuple[File, ...] = ()


def listing(folder: Path) -> list[Path]:
    """Return all folders and files named like a checkpoint, complete or not, oldest first; none of a link to a folder.

    Raises:
        Unreadable: the system fails to read the folder (exit code 3).
    """
    try:
        found = files.retrying(folder, lambda: [folder / name for name in files.names_in(folder)])
    except (FileNotFoundError, NotADirectoryError):
        return []
    numbered = (p for p in found if p.name.isascii() and p.name.isdigit())
    return sorted(numbered, key=lambda p: (int(p.name), p.name))


def complete(folder: Path) -> list[Path]:
    """Return the checkpoints with a manifest whose files all have their size, oldest first."""
    return [p for p in listing(folder) if not faults(p, deep=False)]


def newest_intact(folder: Path, run_id: str = "") -> tuple[Path | None, dict[Path, list[str]]]:
    """Return the newest checkpoint whose files all have their SHA-256, and the faults of each newer one.

    A checkpoint of another run than `run_id` counts as faulty; "" accepts any.

    Raises:
        NewerSchema: a newer checkpoint was written by a later hmx; using an older one would lose it.
        Unreadable: the system fails to read a file; the checkpoint may be intact.
    """
    broken: dict[Path, list[str]] = {}
    for path in reversed(listing(folder)):
        found = _faults(path, deep=True, run_id=run_id)
        if not found:
            return path, broken
        broken[path] = found
    return None, broken


def intact(folder: Path, update: int, run_id: str = "") -> Path:
    """Return the checkpoint of an update.

    Raises:
        HmxError: there is none, or it is damaged or of another run (exit code 3).
    """
    path, known = folder / str(update), listing(folder)
    if path not in known:
        names = ", ".join(p.name for p in known) or "none"
        raise HmxError(f"there is no checkpoint {path}", f"checkpoints there: {names}", ExitCode.ARTEFACT)
    return checked(path, run_id)


def checked(path: Path, run_id: str = "") -> Path:
    """Return the path of a checkpoint whose files all have their SHA-256.

    Raises:
        HmxError: it is damaged or of another run (exit code 3).
    """
    if found := faults(path, run_id=run_id):
        hint = "give another checkpoint, or none to use the newest intact one"
        raise HmxError(f"checkpoint {path} is damaged: {'; '.join(found[:2])}", hint, ExitCode.ARTEFACT)
    return path


def write_manifest(
    checkpoint: Path, update: int, leaves: Sequence[Leaf] = (), info: CheckpointInfo | None = None
) -> Manifest:
    """Hash every file of a checkpoint and write its manifest; nothing may be added to the folder afterwards.

    Raises:
        OSError: a file cannot be read, or the manifest cannot be written.
    """
    manifest = Manifest(
        **vars(info or CheckpointInfo()),
        update=update,
        leaves=tuple(Leaf(leaf.path, tuple(leaf.shape), leaf.dtype) for leaf in leaves),
        files=tuple(
            File(path=p.relative_to(checkpoint).as_posix(), size=p.stat().st_size, sha256=files.sha256_of(p))
            for p in sorted(checkpoint.rglob("*"))
            if p.is_file() and p != checkpoint / MANIFEST
        ),
    )
    atomic.write_text(checkpoint / MANIFEST, artefact.sealed(plain_object(manifest)))
    return manifest


def read_manifest(checkpoint: Path) -> Manifest:
    """Read the manifest of a checkpoint.

    Raises:
        HmxError: it is missing, damaged, unreadable or of a newer schema (exit code 3).
    """
    path = checkpoint / MANIFEST
    hint = "another checkpoint of the run may be intact; `hmx resume` uses the newest intact one"
    missing = f"checkpoint {checkpoint} is incomplete: it has no {MANIFEST}"
    data = artefact.read_json(path, SCHEMA, missing, hint, _SEALED_FROM)
    try:
        manifest = typed(Manifest, data)
        for leaf in manifest.leaves:
            _check_leaf(leaf)
        for file in manifest.files:
            _check_inside(file.path)
        return manifest
    except (TypeError, ValueError) as problem:
        why = str(problem) if type(problem) is ValueError else "not a manifest"
        raise HmxError(f"{path} is damaged: {why}", hint, ExitCode.ARTEFACT) from None


def _check_leaf(leaf: Leaf) -> None:
    # In this order, so that the product below stays small.
    if len(leaf.shape) > _MAX_RANK:
        raise ValueError(f"it claims {len(leaf.shape):,} dimensions for {leaf.path[:80]}")
    if max(leaf.shape, default=0) > MAX_ELEMENTS or math.prod(leaf.shape) > MAX_ELEMENTS:
        shape = str(list(leaf.shape))[:80]
        raise ValueError(f"it claims the shape {shape} for {leaf.path[:80]}, more than {MAX_ELEMENTS:,} elements")


def _check_inside(path: str) -> None:
    """Check that a path leads to a file inside the checkpoint."""
    parts = PurePosixPath(path).parts
    outside = not parts or parts[0] == "/" or ".." in parts or "\\" in path
    if outside or len(path) > _MAX_PATH or not path.isprintable():
        raise ValueError(f"it names {path[:80]!r}, which is not a file of the checkpoint")


def faults(checkpoint: Path, deep: bool = True, run_id: str = "") -> list[str]:
    """Return the faults of a checkpoint, one line each; none for an intact one.

    `deep` compares the SHA-256 of every file, not only sizes. A checkpoint of another run than `run_id` counts as
    faulty; "" accepts any.
    """
    try:
        return _faults(checkpoint, deep, run_id)
    except (artefact.NewerSchema, files.Unreadable) as problem:
        return [problem.message]


def _faults(checkpoint: Path, deep: bool, run_id: str) -> list[str]:
    if checkpoint.is_symlink():
        return ["a link instead of a folder"]
    if checkpoint.exists() and not checkpoint.is_dir():
        return ["a file instead of a folder"]
    try:
        manifest = read_manifest(checkpoint)
    except (artefact.NewerSchema, files.Unreadable):
        raise
    except HmxError as problem:
        return [problem.message]
    found = []
    if other := artefact.foreign(manifest.run_id, run_id):
        found.append(other)
    if checkpoint.name.isdigit() and int(checkpoint.name) != manifest.update:
        found.append(f"the manifest is of update {manifest.update}")
    for file in manifest.files:
        try:
            size = _size(checkpoint, file.path)
            if size != file.size:
                found.append(f"{file.path}: {size:,} bytes instead of {file.size:,}")
            elif deep and files.sha256_of(checkpoint / file.path) != file.sha256:
                found.append(f"{file.path}: the content has changed")
        except OSError as problem:
            found.append(f"{file.path}: {files.words(problem)}")
    return found


def _size(checkpoint: Path, path: str) -> int:
    """Return the size of a regular file; neither it nor a folder on its path may be a link."""
    part, status = checkpoint, None
    for name in PurePosixPath(path).parts:
        part = part / name
        status = files.retrying(part, part.lstat)
        if stat.S_ISLNK(status.st_mode):
            raise OSError(0, f"{part.name} is a link")
    if status is None or not stat.S_ISREG(status.st_mode):
        raise OSError(0, "not a regular file")
    return status.st_size


def leaf_differences(saved: Sequence[Leaf], wanted: Sequence[Leaf]) -> list[str]:
    """Return one line per leaf that is missing, unknown, or of another shape or dtype."""
    old, new = ({leaf.path: leaf for leaf in leaves} for leaves in (saved, wanted))
    lines = []
    for path in sorted(old.keys() | new.keys()):
        if path not in new:
            lines.append(f"{path}: saved, but not needed")
        elif path not in old:
            lines.append(f"{path}: needed, but not saved")
        elif old[path] != new[path]:
            a, b = old[path], new[path]
            lines.append(f"{path}: saved as {a.dtype}{list(a.shape)}, needed as {b.dtype}{list(b.shape)}")
    return lines


class Retention(NamedTuple):
    """Which checkpoints of a run stay on the disk."""

    newest: int  # at least 1
    best: int = 0
    last: int = 0  # update that ends the run; 0 if it is not known
    middle_bytes: int = 0  # disk space for the newest checkpoints up to 10, 25 and 50 % of the run


MIDDLE = (0.5, 0.25, 0.1)
"""Parts of a run whose checkpoints `Retention.middle_bytes` is for, in order of priority."""


def surplus(folder: Path, keep: Retention) -> list[Path]:
    """Return the checkpoints to delete so that intact ones remain as `keep` says.

    The best ones have the highest scores, the newer of two equal ones first; a checkpoint may be among the newest, the
    best and those of the middle. Only intact checkpoints count, and nothing is surplus unless one is intact. Damaged
    ones older than the newest intact one are surplus too. Links, and checkpoints that a later hmx wrote or that cannot
    be read at the moment, are never surplus.

    Returns:
        Folders, oldest first.
    """
    if keep.newest < 1:
        raise ValueError("at least one checkpoint must be kept")
    known = [p for p in listing(folder) if p.is_dir() and not p.is_symlink()]
    manifests: dict[Path, Manifest] = {}  # of the intact ones
    spared = []
    for path in known:
        try:
            manifests |= _manifest_if_intact(path, _stamps(path))
        except (artefact.NewerSchema, files.Unreadable):
            spared.append(path)
    if not manifests:
        return []
    intact, scored = list(manifests), [path for path, found in manifests.items() if found.score is not None]
    best = sorted(scored, key=lambda p: (manifests[p].score or 0.0, int(p.name)), reverse=True)[: keep.best]
    kept = {*intact[-keep.newest :], *best, *spared, *_middle(manifests, keep)}
    return [p for p in known if p not in kept and int(p.name) < int(intact[-1].name)]


def _middle(intact: Mapping[Path, Manifest], keep: Retention) -> Iterator[Path]:
    """Yield the newest checkpoints up to the parts `MIDDLE` of a run that fit into `keep.middle_bytes`."""
    left = keep.middle_bytes
    for part in MIDDLE:
        before = [path for path in intact if int(path.name) <= part * keep.last]
        if before and left > 0:
            left -= sum(file.size for file in intact[before[-1]].files)
            if left >= 0:
                yield before[-1]


def _stamps(checkpoint: Path) -> tuple[tuple[str | int, ...], ...]:
    """Return names, sizes and times of the files of a checkpoint; a changed file has others."""
    found = ((str(path), path.lstat()) for path in sorted(checkpoint.rglob("*")))
    return tuple((path, at.st_ino, at.st_mode, at.st_size, at.st_mtime_ns) for path, at in found)


@functools.lru_cache(maxsize=64)
def _manifest_if_intact(checkpoint: Path, stamps: tuple[tuple[str | int, ...], ...]) -> dict[Path, Manifest]:
    """Return the manifest of a checkpoint whose files are intact; they are read again only after one has changed."""
    return {} if _faults(checkpoint, deep=True, run_id="") else {checkpoint: read_manifest(checkpoint)}
