"""Checkpoint folders, readable without JAX: which there are, which are whole, and what is in them.

A checkpoint is a folder named by its update, with a `manifest.json` that is written last and lists every other file
with its size and SHA-256; it carries a copy of the run's run.toml and meta.json, so that either may be lost. A folder
without a manifest, or with a file of another size, is not complete.

Schemas of the manifest: 1 had no score, no mark of the metrics, no copies and no seal; 2 has them.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import stat
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from hmx.errors import ExitCode, HmxError
from hmx.records import atomic
from hmx.records.artefact import NewerSchema, read_json, sealed, sha256_of, words
from hmx.records.jsonl import Mark

SCHEMA = 2
MANIFEST = "manifest.json"
MAX_ELEMENTS = 1 << 36  # of one array; a manifest that claims more is not believed
_MAX_RANK = 64  # dimensions of one array, likewise
_MAX_PATH = 1000  # characters of a file's path inside the checkpoint

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
class Manifest:
    """What a checkpoint holds, and what a configuration must share with it."""

    schema: int = SCHEMA
    update: int
    env_steps: int = 0
    shape_digest: str = ""
    config_digest: str = ""
    score: float | None = None  # mean episode return since the checkpoint before; None where no episode ended
    metrics: Mark | None = None  # metrics.jsonl at the moment of the state
    leaves: tuple[Leaf, ...] = ()
    files: tuple[File, ...] = ()


def listing(folder: Path) -> list[Path]:
    """Everything that has the name of a checkpoint, oldest first by number, complete or not."""
    try:
        found = [p for p in folder.iterdir() if p.name.isascii() and p.name.isdigit()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(found, key=lambda p: (int(p.name), p.name))


def complete(folder: Path) -> list[Path]:
    """The checkpoints whose manifest is there and whose files all have their size, oldest first."""
    return [p for p in listing(folder) if not faults(p, deep=False)]


def newest_intact(folder: Path) -> tuple[Path | None, dict[Path, list[str]]]:
    """The newest checkpoint whose files all have their SHA-256, and what is wrong with each newer one.

    Raises:
        NewerSchema: a later hmx wrote one that is newer than that; going back behind it would lose it.
    """
    broken: dict[Path, list[str]] = {}
    for path in reversed(listing(folder)):
        found = _faults(path, deep=True)
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
    *,
    score: float | None = None,
    metrics: Mark | None = None,
    copies: Mapping[str, str] | None = None,
) -> Manifest:
    """Hashes every file of a checkpoint and writes its manifest; nothing may be added to the folder afterwards.

    Args:
        checkpoint: the folder, with the arrays in it.
        update: updates done.
        env_steps: steps taken, per seed.
        shape_digest: of the configuration, see `hmx.config.codec`.
        config_digest: likewise.
        leaves: of the state.
        score: mean episode return since the checkpoint before; what is not finite counts as None.
        metrics: how far metrics.jsonl belongs to this state.
        copies: small texts to keep beside the arrays, by file name.

    Raises:
        OSError: a file cannot be read, or something cannot be written.
    """
    for name, text in (copies or {}).items():
        (checkpoint / name).write_text(text, encoding="utf-8")
    manifest = Manifest(
        update=update,
        env_steps=env_steps,
        shape_digest=shape_digest,
        config_digest=config_digest,
        score=None if score is None or not math.isfinite(score) else float(score),
        metrics=metrics,
        leaves=tuple(Leaf(leaf.path, tuple(leaf.shape), leaf.dtype) for leaf in leaves),
        files=tuple(
            File(path=p.relative_to(checkpoint).as_posix(), size=p.stat().st_size, sha256=sha256_of(p))
            for p in sorted(checkpoint.rglob("*"))
            if p.is_file() and p != checkpoint / MANIFEST
        ),
    )
    data = dataclasses.asdict(manifest)
    data["leaves"] = [leaf._asdict() for leaf in manifest.leaves]
    data["metrics"] = None if metrics is None else metrics._asdict()
    atomic.write_text(checkpoint / MANIFEST, sealed(data))
    return manifest


def read_manifest(checkpoint: Path) -> Manifest:
    """The manifest of a checkpoint.

    Raises:
        HmxError: it is missing, damaged or of a newer schema (exit code 3).
    """
    path = checkpoint / MANIFEST
    hint = "another checkpoint of the run may be intact; `hmx resume` takes the newest that is"
    data = read_json(path, SCHEMA, f"checkpoint {checkpoint} is not complete: no {MANIFEST}", hint, _SEALED_FROM)
    try:
        return _manifest(data)
    except (TypeError, KeyError, ValueError, AttributeError) as problem:
        why = str(problem) if type(problem) is ValueError else "not a manifest"
        raise HmxError(f"{path} is damaged: {why}", hint, ExitCode.ARTEFACT) from None


def _manifest(data: Mapping[str, Any]) -> Manifest:
    score, metrics = data.get("score"), data.get("metrics")
    return Manifest(
        schema=_count(data["schema"]),
        update=_count(data["update"]),
        env_steps=_count(data["env_steps"]),
        shape_digest=_text(data["shape_digest"]),
        config_digest=_text(data["config_digest"]),
        score=None if score is None else _real(score),
        metrics=None if metrics is None else Mark(_count(metrics["size"]), _text(metrics["sha256"])),
        leaves=tuple(_leaf(x) for x in data["leaves"]),
        files=tuple(
            File(path=_inside(x["path"]), size=_count(x["size"]), sha256=_text(x["sha256"])) for x in data["files"]
        ),
    )


def _leaf(data: Mapping[str, Any]) -> Leaf:
    leaf = Leaf(_text(data["path"]), tuple(_count(n) for n in data["shape"]), _text(data["dtype"]))
    # in this order, so that what is multiplied is few and not large
    if len(leaf.shape) > _MAX_RANK:
        raise ValueError(f"it claims {len(leaf.shape):,} dimensions for {leaf.path[:80]}")
    if max(leaf.shape, default=0) > MAX_ELEMENTS or math.prod(leaf.shape) > MAX_ELEMENTS:
        shape = str(list(leaf.shape))[:80]
        raise ValueError(f"it claims the shape {shape} for {leaf.path[:80]}, more than {MAX_ELEMENTS:,} elements")
    return leaf


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise TypeError
    return value


def _real(value: Any) -> float:
    if type(value) not in (int, float) or not abs(value) <= sys.float_info.max:
        raise TypeError
    return float(value)


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError
    return value


def _inside(value: Any) -> str:
    """The path of a file inside the checkpoint, and nowhere else."""
    path = _text(value)
    parts = PurePosixPath(path).parts
    outside = not parts or parts[0] == "/" or ".." in parts or "\\" in path
    if outside or len(path) > _MAX_PATH or not path.isprintable():
        raise ValueError(f"it names {path[:80]!r}, which is not a file of the checkpoint")
    return path


def faults(checkpoint: Path, deep: bool = True) -> list[str]:
    """What is wrong with a checkpoint, one line each; empty for an intact one.

    Args:
        checkpoint: its folder.
        deep: whether to read every file and compare its SHA-256, or only the sizes.
    """
    try:
        return _faults(checkpoint, deep)
    except NewerSchema as problem:
        return [problem.message]


def _faults(checkpoint: Path, deep: bool) -> list[str]:
    if checkpoint.is_symlink():
        return ["a link in place of a folder"]
    if checkpoint.exists() and not checkpoint.is_dir():
        return ["a file in place of a folder"]
    try:
        manifest = read_manifest(checkpoint)
    except NewerSchema:
        raise
    except HmxError as problem:
        return [problem.message]
    found = []
    if checkpoint.name.isdigit() and int(checkpoint.name) != manifest.update:
        found.append(f"the manifest is of update {manifest.update}")
    for file in manifest.files:
        try:
            size = _size(checkpoint, file.path)
            if size != file.size:
                found.append(f"{file.path}: {size:,} bytes instead of {file.size:,}")
            elif deep and sha256_of(checkpoint / file.path) != file.sha256:
                found.append(f"{file.path}: the content has changed")
        except OSError as problem:
            found.append(f"{file.path}: {words(problem)}")
    return found


def _size(checkpoint: Path, path: str) -> int:
    """The size of a regular file, no folder on the way to which is a link."""
    place, status = checkpoint, None
    for part in PurePosixPath(path).parts:
        place = place / part
        status = os.lstat(place)
        if stat.S_ISLNK(status.st_mode):
            raise OSError(0, f"{place.name} is a link")
    if status is None or not stat.S_ISREG(status.st_mode):
        raise OSError(0, "not a regular file")
    return status.st_size


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


def surplus(folder: Path, keep: int, keep_best: int = 0) -> list[Path]:
    """The checkpoints to delete so that the newest `keep` >= 1 and the best `keep_best` intact ones are left.

    The best are those of the highest score, the newer of two equal ones first; a checkpoint may be among the newest
    and the best. Only those whose every file has its SHA-256 are counted, and nothing is surplus until one has.
    Damaged ones older than the newest intact one are surplus too; those of a later hmx, links, and what cannot be read
    for the moment never are.

    Returns:
        Folders, oldest first.
    """
    if keep < 1:
        raise ValueError("at least one checkpoint must be kept")
    known = [p for p in listing(folder) if p.is_dir() and not p.is_symlink()]
    state = {path: _judged(path) for path in known}
    intact = [path for path in known if state[path].intact]
    if not intact:
        return []
    scored = [path for path in intact if state[path].score is not None]
    best = sorted(scored, key=lambda p: (state[p].score or 0.0, int(p.name)), reverse=True)[:keep_best]
    kept = {*intact[-keep:], *best}
    newest = int(intact[-1].name)
    return [p for p in known if p not in kept and int(p.name) < newest and not state[p].spared]


class _Judgement(NamedTuple):
    intact: bool
    spared: bool = False  # of a later hmx, or not to be read for the moment
    score: float | None = None


def _judged(checkpoint: Path) -> _Judgement:
    """Whether it is intact, by the content of its files; they are read again only once one has been touched."""
    stamps = []
    for path in sorted(checkpoint.rglob("*")):
        status = path.lstat()
        stamps.append((str(path), status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns))
    judgement = _judge(checkpoint, tuple(stamps))
    if not judgement.intact and not _readable(checkpoint):
        _judge.cache_clear()  # what is no fault of the files may pass
        return _Judgement(intact=False, spared=True)
    return judgement


def _readable(checkpoint: Path) -> bool:
    """Whether every file there opens: too many open files, or a share that is gone, are no damage."""
    try:
        for path in checkpoint.rglob("*"):
            if path.is_file():
                path.open("rb").close()
    except OSError:
        return False
    return True


@functools.lru_cache(maxsize=64)
def _judge(checkpoint: Path, stamps: tuple[tuple[Any, ...], ...]) -> _Judgement:
    try:
        if _faults(checkpoint, deep=True):
            return _Judgement(intact=False)
        return _Judgement(intact=True, score=read_manifest(checkpoint).score)
    except NewerSchema:
        return _Judgement(intact=False, spared=True)
