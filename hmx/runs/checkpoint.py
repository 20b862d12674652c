"""Checkpoints: the whole state of a run as named arrays, complete or not there at all."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import logging
import math
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from hmx.agents.types import TrainState
from hmx.errors import ExitCode, HmxError
from hmx.records import checkpoints as records
from hmx.records.atomic import sync_folder
from hmx.records.checkpoints import Leaf
from hmx.records.jsonl import Mark
from hmx.runs.migrations import migrate
from hmx.runs.signals import interruptible
from hmx.types import Array

_OVERHEAD = 192 << 10  # bytes of a checkpoint besides its arrays, and room for a few lines of metrics
_OPEN_FILES = 64  # more than orbax was seen to open at a time
ARRAYS = "arrays"  # the orbax folder inside a checkpoint

Leaves = dict[str, np.ndarray[Any, Any]]


class Form(NamedTuple):
    """An array without its numbers."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class Snapshot(NamedTuple):
    """A state in host memory, and what it is made of."""

    leaves: Leaves
    form: tuple[Leaf, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class About:
    """What a checkpoint says of itself besides its arrays; see `hmx.records.checkpoints.write_manifest`."""

    env_steps: int = 0
    shape_digest: str = ""
    config_digest: str = ""
    score: float | None = None
    metrics: Mark | None = None
    copies: Mapping[str, str] = dataclasses.field(default_factory=dict)
    keep_best: int = 0  # checkpoints of the highest score that are kept besides the newest
    more: Callable[[Path], None] | None = None  # writes further files into the folder


def leaf_names(state: TrainState) -> list[str]:
    """The path of every leaf of a state, `params/torso/kernel` for example, in the order of `jax.tree.leaves`."""
    paths = [path for path, _ in jax.tree_util.tree_flatten_with_path(state)[0]]
    names = [jax.tree_util.keystr(path, simple=True, separator="/") for path in paths]
    if len(set(names)) == len(names):
        return names
    return [jax.tree_util.keystr(path) for path in paths]


def _is_key(leaf: Any) -> bool:
    return bool(jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key))


def as_data(leaf: Any) -> Any:
    """A typed key as the numbers it is made of; any other leaf as it is."""
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def describe(state: TrainState) -> tuple[Leaf, ...]:
    """Path, shape and dtype of every leaf; a typed key has a dtype like `key<fry>`."""
    leaves = jax.tree.leaves(state)
    return tuple(Leaf(n, tuple(x.shape), str(x.dtype)) for n, x in zip(leaf_names(state), leaves, strict=True))


def to_host(state: TrainState) -> Leaves:
    """A copy of every leaf in host memory, keys as their data: it outlives the donation of the state."""
    plain = [as_data(leaf) for leaf in jax.tree.leaves(state)]
    return {name: np.array(leaf) for name, leaf in zip(leaf_names(state), jax.device_get(plain), strict=True)}


def from_host(leaves: Leaves, abstract: TrainState) -> TrainState:
    """The inverse of `to_host`, for a state of the shapes of `abstract`."""
    named = zip(leaf_names(abstract), jax.tree.leaves(abstract), strict=True)
    # A copy, since a device array may otherwise borrow memory that donation would then overwrite.
    revived = [from_data(jax.numpy.array(leaves[name]), leaf) for name, leaf in named]
    return jax.tree.unflatten(jax.tree.structure(abstract), revived)


def from_data(array: Array, like: Any) -> Array:
    """The inverse of `as_data`, for a leaf of the kind of `like`."""
    return jax.random.wrap_key_data(array, impl=_impl(like)) if _is_key(like) else array


def _impl(key: Any) -> str:
    # `jax.random.key_impl` takes arrays only, and an abstract state has none.
    for name in ("threefry2x32", "rbg", "unsafe_rbg"):
        if jax.random.key(0, impl=name).dtype == key.dtype:
            return name
    raise ValueError(f"a key of unknown kind, {key.dtype}")


def snapshot(state: TrainState) -> Snapshot:
    """A state in host memory, which outlives the donation of the state."""
    return Snapshot(to_host(state), describe(state))


def save(folder: Path, state: TrainState, update: int, keep: int, about: About | None = None) -> Path:
    """`write` for a state on the device."""
    return write(folder, snapshot(state), update, keep, about)


def write(folder: Path, saved: Snapshot, update: int, keep: int | None, about: About | None = None) -> Path:
    """Writes a checkpoint to `folder/<update>`, then deletes those that `keep` and `about.keep_best` do not keep.

    The checkpoint is written beside its final name, its manifest last, flushed to disk and renamed, so that
    a folder with a number for a name is complete at any moment the process may die. Older checkpoints go
    only after that, and lose their name first.

    Args:
        folder: of the checkpoints.
        saved: the state.
        update: updates done.
        keep: how many of the newest are left; None leaves all.
        about: what the manifest says besides.

    Raises:
        HmxError: the folder cannot be written; the older checkpoints are all still there.
    """
    about = about or About()
    final, temporary = folder / str(update), folder / f".tmp-{update}-{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for stale in folder.glob(".tmp-*"):
            shutil.rmtree(stale)
        temporary.mkdir()
        _reserve(temporary, saved)
        _write_arrays(temporary / ARRAYS, saved.leaves)
        if about.more is not None:
            about.more(temporary)
        records.write_manifest(
            temporary,
            update,
            about.env_steps,
            about.shape_digest,
            about.config_digest,
            saved.form,
            score=about.score,
            metrics=about.metrics,
            copies=about.copies,
        )
        _sync(temporary)
        if final.exists():
            # rename cannot replace a folder that is not empty
            os.rename(final, folder / f".tmp-replaced-{update}")
        os.rename(temporary, final)
        sync_folder(folder)
    except Exception as error:  # orbax and tensorstore raise whatever they meet on a disk that is full
        # What a failed write leaves behind may be what fills the disk.
        shutil.rmtree(temporary, ignore_errors=True)
        hint = "check the free space and the permissions of the folder; checkpoints already there are untouched"
        raise HmxError(f"checkpoint {final} cannot be written: {_reason(error)}", hint, ExitCode.ARTEFACT) from error
    if keep is not None:
        _retire(folder, keep, about.keep_best)
    return final


def _retire(folder: Path, keep: int, keep_best: int) -> None:
    """Deletes what is surplus; what cannot be deleted now is tried again after the next checkpoint."""
    with contextlib.suppress(OSError):
        for old in records.surplus(folder, keep, keep_best):
            # A deletion cut short leaves nothing that looks like a checkpoint.
            os.rename(old, folder / f".tmp-old-{old.name}")
        for old in folder.glob(".tmp-*"):
            shutil.rmtree(old, ignore_errors=True)


def restore(path: Path, abstract: TrainState) -> TrainState:
    """The state saved at `path`, bit for bit, in the structure of `abstract` (arrays, or their shapes).

    Raises:
        HmxError: the saved leaves are not those of `abstract` (each one that differs is named), or the
            checkpoint cannot be read (exit code 3).
    """
    manifest, wanted = records.read_manifest(path), describe(abstract)
    migrated = migrate(manifest, wanted)
    problems = records.leaf_differences((*migrated.read, *migrated.zeros), wanted)
    if problems:
        shown = problems[:8] + ([f"and {len(problems) - 8} more"] if len(problems) > 8 else [])
        message = "\n".join([f"checkpoint {path} does not fit this configuration:", *(f"  {line}" for line in shown)])
        hint = "use the run's own run.toml, and the version of hmx that its meta.json names"
        raise HmxError(message, hint, ExitCode.ARTEFACT)
    forms = host_forms(abstract)
    zeros = {leaf.path: np.zeros(*forms[leaf.path]) for leaf in migrated.zeros}
    saved = {leaf.path: forms[leaf.path] for leaf in migrated.read}
    try:
        leaves = interruptible(lambda: _read_arrays(path / ARRAYS, saved))
        return from_host({**leaves, **zeros}, abstract)
    except Exception as error:  # orbax and tensorstore raise whatever they meet in a damaged file
        hint = "another checkpoint of the run may be intact; `hmx resume` takes the newest that is"
        raise HmxError(f"checkpoint {path} cannot be read: {_reason(error)}", hint, ExitCode.ARTEFACT) from error


def host_forms(abstract: TrainState) -> dict[str, Form]:
    """Shape and dtype of every leaf as `to_host` gives it, in its order: keys as their data."""
    plain = jax.eval_shape(lambda tree: [as_data(leaf) for leaf in jax.tree.leaves(tree)], abstract)
    named = zip(leaf_names(abstract), plain, strict=True)
    return {name: Form(tuple(leaf.shape), np.dtype(leaf.dtype)) for name, leaf in named}


def _orbax() -> Any:
    """The package, which takes a second to import and logs a traceback of its own for every error that it raises."""
    import orbax.checkpoint

    log = logging.getLogger("absl")
    if _of_others not in log.filters:
        log.addFilter(_of_others)
    return orbax.checkpoint


def _alone(ocp: Any) -> Any:
    """What reads and writes arrays in this process only: orbax would have all of a run wait for each other."""
    if jax.process_count() == 1:
        return ocp.Checkpointer(ocp.PyTreeCheckpointHandler())
    me = jax.process_index()
    only = ocp.options.MultiprocessingOptions(primary_host=me, active_processes={me})
    handler = ocp.PyTreeCheckpointHandler(multiprocessing_options=only)
    return ocp.Checkpointer(handler, multiprocessing_options=only)


def _of_others(record: logging.LogRecord) -> bool:
    return "orbax" not in record.pathname


def _reserve(folder: Path, saved: Snapshot) -> None:
    """Makes sure that there is room for a checkpoint and for the files to be opened, by taking it and giving it back.

    A write that meets a limit half-way ends in many messages of tensorstore's own threads.
    """
    place = folder / "reserve"
    handle, others = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), []
    try:
        for _ in range(_OPEN_FILES):
            others.append(os.dup(handle))
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(handle, 0, sum(leaf.nbytes for leaf in saved.leaves.values()) + _OVERHEAD)
    except OSError as error:
        # A file system that cannot allocate ahead says so in its own way.
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE):
            raise
    finally:
        for number in (handle, *others):
            os.close(number)
        place.unlink()


def _write_arrays(path: Path, leaves: Leaves) -> None:
    ocp = _orbax()
    # Tensorstore has no arrays of size 0; their shape in the manifest is all there is to them.
    with _alone(ocp) as writer:
        writer.save(path.absolute(), {name: leaf for name, leaf in leaves.items() if leaf.size})


def _read_arrays(path: Path, saved: dict[str, Form]) -> Leaves:
    """The arrays of a checkpoint, which must be of the forms `saved`: nothing larger is ever allocated.

    Raises:
        ValueError: the arrays say that they are something else.
    """
    ocp = _orbax()
    empty = {name: np.zeros(*form) for name, form in saved.items() if 0 in form.shape}
    names = [name for name in saved if name not in empty]
    with _alone(ocp) as reader:
        # What the manifest says has been compared with what is needed; now the headers of the arrays themselves.
        told = reader.metadata(path.absolute()).item_metadata
        if told is None:
            raise ValueError("the headers of its arrays are damaged")
        for name in names:
            _check_header(name, told.tree.get(name), saved[name])
        # Partial: a checkpoint of an earlier schema has arrays that are no longer needed.
        forms = {name: ocp.RestoreArgs(restore_type=np.ndarray) for name in names}
        wanted = ocp.args.PyTreeRestore(dict.fromkeys(names, 0), restore_args=forms, partial_restore=True)
        found = reader.restore(path.absolute(), args=wanted)
    return {**found, **empty}


def _check_header(name: str, told: Any, form: Form) -> None:
    if told is None:
        raise ValueError(f"the array {name} is missing")
    shape, chunk = tuple(told.shape), told.storage.chunk_shape if told.storage else None
    if (shape, np.dtype(told.dtype)) != form:
        raise ValueError(f"the array {name} is {told.dtype}{list(shape)}, and not {form.dtype}{list(form.shape)}")
    if chunk is not None and math.prod(chunk) > max(math.prod(shape), 1):
        raise ValueError(f"the array {name} has chunks of {list(chunk)}, larger than itself")


def _reason(error: Exception) -> str:
    text = (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
    return " ".join(text.split())[:300]


def _sync(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        else:
            sync_folder(path)
    sync_folder(folder)
