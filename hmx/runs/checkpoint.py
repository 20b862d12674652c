"""Write and restore checkpoints: the whole state of a run as named arrays, written atomically."""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import jax
import numpy as np

from hmx.algos.ppo.reference import ReferencePolicy
from hmx.algos.types import TrainState
from hmx.config.files import make_folder
from hmx.errors import ExitCode, HmxError
from hmx.records import checkpoints as records
from hmx.records.atomic import sync_folder
from hmx.records.checkpoints import CheckpointInfo, Leaf, Manifest
from hmx.runs.signals import interruptible
from hmx.types import Array

_OVERHEAD = 192 << 10  # bytes of a checkpoint without its arrays, and of a few lines of metrics
_OPEN_FILES = 64  # more than orbax opens at a time
ARRAYS = "arrays"  # the orbax folder inside a checkpoint

Leaves = dict[str, np.ndarray[Any, Any]]
Forms = dict[str, jax.ShapeDtypeStruct]


class DoesNotFit(HmxError):
    """The arrays of a checkpoint have other shapes than a configuration needs."""


class Snapshot(NamedTuple):
    """A state in host memory, with the description of its leaves."""

    leaves: Leaves
    form: tuple[Leaf, ...]


def leaf_names(state: object) -> list[str]:
    """Return the path of every leaf, such as `params/torso/kernel`, in the order of `jax.tree.leaves`."""
    paths = [path for path, _ in jax.tree_util.tree_flatten_with_path(state)[0]]
    names = [jax.tree_util.keystr(path, simple=True, separator="/") for path in paths]
    if len(set(names)) == len(names):
        return names
    return [jax.tree_util.keystr(path) for path in paths]


def _is_key(leaf: Array | jax.ShapeDtypeStruct) -> bool:
    return bool(jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key))


def as_data(leaf: Array) -> Array:
    """Return the data of a typed key; any other leaf unchanged."""
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def describe(state: object) -> tuple[Leaf, ...]:
    """Return path, shape and dtype of every leaf; a typed key has a dtype like `key<fry>`."""
    leaves = jax.tree.leaves(state)
    return tuple(Leaf(n, tuple(x.shape), str(x.dtype)) for n, x in zip(leaf_names(state), leaves, strict=True))


def to_host(state: object) -> Leaves:
    """Copy every leaf to host memory, keys as their data; the copy is valid after the state is donated."""
    plain = [as_data(leaf) for leaf in jax.tree.leaves(state)]
    return {name: np.array(leaf) for name, leaf in zip(leaf_names(state), jax.device_get(plain), strict=True)}


def from_host(leaves: Leaves, abstract: TrainState) -> TrainState:
    """Invert `to_host`, for a state shaped like `abstract`."""
    named = zip(leaf_names(abstract), jax.tree.leaves(abstract), strict=True)
    revived = [from_data(copied(leaves[name]), leaf) for name, leaf in named]
    return cast(TrainState, jax.tree.unflatten(jax.tree.structure(abstract), revived))


def copied(leaf: Array | np.ndarray[Any, Any]) -> Array:
    """Return a copy on the device, which may be donated; `jax.numpy.array` would compile a program for each shape."""
    return cast(Array, jax.device_put(np.array(leaf)))


def from_data(array: Array, like: Array | jax.ShapeDtypeStruct) -> Array:
    """Invert `as_data`, for a leaf like `like`."""
    return jax.random.wrap_key_data(array, impl=_impl(like)) if _is_key(like) else array


def _impl(key: Array | jax.ShapeDtypeStruct) -> str:
    # `jax.random.key_impl` accepts arrays only, not shapes.
    for name in ("threefry2x32", "rbg", "unsafe_rbg"):
        if jax.random.key(0, impl=name).dtype == key.dtype:
            return name
    raise ValueError(f"unknown kind of key: {key.dtype}")


def snapshot(state: TrainState) -> Snapshot:
    """Return `to_host` and `describe` of the parts of a state that checkpoints contain."""
    saved = without_reference(state)
    return Snapshot(to_host(saved), describe(saved))


def has_reference(state: object) -> bool:
    """Return whether a state holds the reference policy of `ppo.ref`; states of own algorithms may be of any kind."""
    return isinstance(getattr(getattr(state, "learner", None), "reference", None), ReferencePolicy)


def without_reference(state: TrainState) -> TrainState:
    """Return a state without the reference policy, which never changes and has a file of its own in the run folder."""
    if not has_reference(state):
        return state
    return state._replace(learner=state.learner._replace(reference=None))


def write(
    folder: Path,
    saved: Snapshot,
    update: int,
    keep: records.Retention | None,
    info: CheckpointInfo | None = None,
    add_files: Callable[[Path], None] = lambda folder: None,
) -> Path:
    """Write a checkpoint to `folder/<update>`, then delete older ones.

    The checkpoint is written under a temporary name, its manifest last, flushed to disk and renamed, so that a folder
    named by a number is complete even if the process dies at any moment. Older checkpoints are then renamed and
    deleted, except those that `keep` names (None: all remain). `add_files` writes further files into the folder.

    Raises:
        HmxError: the folder cannot be written; all older checkpoints are unchanged.
    """
    final, temporary = folder / str(update), folder / f".tmp-{update}-{os.getpid()}"
    try:
        make_folder(folder, parents=True)
        for stale in folder.glob(".tmp-*"):
            shutil.rmtree(stale)
        temporary.mkdir()
        _reserve(temporary, saved)
        _write_arrays(temporary / ARRAYS, saved.leaves)
        add_files(temporary)
        records.write_manifest(temporary, update, saved.form, info)
        _sync(temporary)
        if final.exists():
            # rename cannot replace a folder that is not empty
            os.rename(final, folder / f".tmp-replaced-{update}")
        os.rename(temporary, final)
        sync_folder(folder)
    except Exception as error:  # orbax and tensorstore raise many kinds of errors on a full disk
        # The incomplete files may be the ones that fill the disk.
        shutil.rmtree(temporary, ignore_errors=True)
        hint = "check the free space and the permissions of the folder; older checkpoints are unchanged"
        raise HmxError(f"cannot write checkpoint {final}: {_reason(error)}", hint, ExitCode.ARTEFACT) from error
    if keep is not None:
        _retire(folder, keep)
    return final


def _retire(folder: Path, keep: records.Retention) -> None:
    """Delete surplus checkpoints; those that cannot be deleted now are tried again after the next checkpoint."""
    with contextlib.suppress(OSError):
        for old in records.surplus(folder, keep):
            # An interrupted deletion must not leave a folder that looks like a checkpoint.
            os.rename(old, folder / f".tmp-old-{old.name}")
        for old in folder.glob(".tmp-*"):
            shutil.rmtree(old, ignore_errors=True)


def restore(path: Path, abstract: TrainState) -> TrainState:
    """Restore the state saved at `path`, bit for bit, in the structure of `abstract` (arrays, or their shapes).

    Raises:
        DoesNotFit: the saved leaves differ from those of `abstract`; each difference is named (exit code 3).
        HmxError: the checkpoint cannot be read (3).
    """
    manifest, wanted = records.read_manifest(path), describe(abstract)
    migrated, new = migrate(manifest, wanted)
    images = _images(migrated, wanted)
    if problems := differences(manifest, abstract):
        more = [f"and {len(problems) - 8} more"] if len(problems) > 8 else []
        message = "\n  ".join([f"checkpoint {path} does not fit this configuration:", *problems[:8], *more])
        hint = "use the run's own run.toml and environment, and the version of hmx that its meta.json names"
        raise DoesNotFit(message, hint, ExitCode.ARTEFACT)
    forms = host_forms(abstract)
    zeros = {leaf.path: _zeros(forms[leaf.path]) for leaf in new}
    saved = {
        path: jax.ShapeDtypeStruct(leaf.shape, np.dtype(leaf.dtype)) if leaf.path in images else forms[leaf.path]
        for path, leaf in migrated.items()
    }
    try:
        arrays = interruptible(lambda: _read_arrays(path / ARRAYS, saved))
        leaves = {migrated[name].path: array for name, array in arrays.items()}
        leaves |= {path: leaves[path].reshape(image.shape).astype(image.dtype) for path, image in images.items()}
        return from_host({**leaves, **zeros}, abstract)
    except Exception as error:  # orbax and tensorstore raise many kinds of errors on damaged files
        hint = "another checkpoint of the run may be intact; `hmx resume` uses the newest intact one"
        raise HmxError(f"cannot read checkpoint {path}: {_reason(error)}", hint, ExitCode.ARTEFACT) from error


def equal_states(one: Path, other: Path) -> bool:
    """Return whether two checkpoints have equal states, bit for bit; errors as of `restore`."""
    if records.read_manifest(one).leaves != records.read_manifest(other).leaves:
        return False
    ocp, found = _orbax(), []
    for path in (one, other):
        try:
            with _alone(ocp) as reader:
                found.append(reader.restore((path / ARRAYS).absolute()))
        except Exception as error:  # as in `restore`
            message = f"cannot read checkpoint {path}: {_reason(error)}"
            raise HmxError(message, "hmx runs verify names what is damaged", ExitCode.ARTEFACT) from error
    first, second = found
    return first.keys() == second.keys() and all(
        np.asarray(first[name]).tobytes() == np.asarray(second[name]).tobytes() for name in first
    )


def differences(manifest: Manifest, abstract: object) -> list[str]:
    """Return the saved arrays that do not fit those of `abstract`, one line each, which begins with the path."""
    wanted = describe(abstract)
    migrated, new = migrate(manifest, wanted)
    images = _images(migrated, wanted)
    leaves_now = [images.get(leaf.path, leaf) for leaf in migrated.values()]
    return list(records.leaf_differences((*leaves_now, *new), wanted))


def host_forms(abstract: object) -> Forms:
    """Return shape and dtype of every leaf as in `to_host`, keys as their data."""
    plain = jax.eval_shape(lambda tree: [as_data(leaf) for leaf in jax.tree.leaves(tree)], abstract)
    return dict(zip(leaf_names(abstract), plain, strict=True))


def _zeros(form: jax.ShapeDtypeStruct) -> np.ndarray[Any, Any]:
    return np.zeros(form.shape, form.dtype)


def _orbax() -> Any:
    """Import orbax, which takes a second, and silence the tracebacks that it logs for its errors."""
    import orbax.checkpoint

    log = logging.getLogger("absl")
    if _of_others not in log.filters:
        log.addFilter(_of_others)
    return orbax.checkpoint


def _alone(ocp: Any) -> Any:
    """Return a checkpointer of this process only: by default orbax makes all processes of a run wait."""
    more = {}
    if jax.process_count() > 1:
        me = jax.process_index()
        only = ocp.options.MultiprocessingOptions(primary_host=me, active_processes={me})
        more = {"multiprocessing_options": only}
    return ocp.Checkpointer(ocp.PyTreeCheckpointHandler(**more), **more)


def _of_others(record: logging.LogRecord) -> bool:
    return "orbax" not in record.pathname


def _reserve(folder: Path, saved: Snapshot) -> None:
    """Check that there are enough space and file handles for a checkpoint, by allocating and releasing them.

    A write that reaches a limit half-way causes many messages from the threads of tensorstore.
    """
    path = folder / "reserve"
    handle, others = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), []
    try:
        for _ in range(_OPEN_FILES):
            others.append(os.dup(handle))
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(handle, 0, sum(leaf.nbytes for leaf in saved.leaves.values()) + _OVERHEAD)
    except OSError as error:
        # Other errors: the file system cannot allocate ahead.
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE):
            raise
    finally:
        for number in (handle, *others):
            os.close(number)
        path.unlink()


def _write_arrays(path: Path, leaves: Leaves) -> None:
    # Tensorstore has no arrays of size 0; the manifest has their shapes.
    with _alone(_orbax()) as writer:
        writer.save(path.absolute(), {name: leaf for name, leaf in leaves.items() if leaf.size})


def _read_arrays(path: Path, saved: Forms) -> Leaves:
    """Read the arrays of a checkpoint, which must have the forms `saved`; nothing larger is allocated."""
    ocp = _orbax()
    empty = {name: _zeros(form) for name, form in saved.items() if 0 in form.shape}
    names = [name for name in saved if name not in empty]
    with _alone(ocp) as reader:
        # The manifest has been compared with the forms; now compare the headers of the arrays.
        headers = reader.metadata(path.absolute()).item_metadata
        if headers is None:
            raise ValueError("the headers of its arrays are damaged")
        for name in names:
            _check_header(name, headers.tree.get(name), saved[name])
        # Partial: a checkpoint of an earlier schema has arrays that are not needed.
        forms = {name: ocp.RestoreArgs(restore_type=np.ndarray) for name in names}
        wanted = ocp.args.PyTreeRestore(dict.fromkeys(names, 0), restore_args=forms, partial_restore=True)
        found = reader.restore(path.absolute(), args=wanted)
    return {**found, **empty}


def _check_header(name: str, header: Any, form: jax.ShapeDtypeStruct) -> None:
    if header is None:
        raise ValueError(f"the array {name} is missing")
    shape, chunk = tuple(header.shape), header.storage.chunk_shape if header.storage else None
    if (shape, np.dtype(header.dtype)) != (form.shape, form.dtype):
        raise ValueError(f"the array {name} is {header.dtype}{list(shape)} instead of {form.dtype}{list(form.shape)}")
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


# Schema 1 counted steps in the state, and had neither recurrent networks nor agents that are done before their episode.
# Its environments count as inside an episode, which matters to recurrent networks only.
_DROPPED_SINCE_1 = ("env_steps",)
_ADDED_SINCE_1 = ("reset", "agent_done")

# Schema 3 nests the training state: path of the new parent -> leaves that were at the top before.
_NESTED_SINCE_3 = {
    "actors": ("env_state", "obs", "legal", "episode", "carry", "reset", "agent_done", "obs_stats", "starts"),
    "learner": ("value_stats", "target_params", "replay", "overwritten", "gradient_steps"),
}
_PARENTS = {name: parent for parent, names in _NESTED_SINCE_3.items() for name in names}


def migrate(manifest: Manifest, wanted: Sequence[Leaf]) -> tuple[dict[str, Leaf], tuple[Leaf, ...]]:
    """Return how to make the leaves of a current state from those of a checkpoint.

    Returns:
        The leaves with their current paths, by path in the checkpoint; and new leaves, which start as zeros, or False.
    """
    nest = _nested if manifest.schema < 3 else str
    dropped = _DROPPED_SINCE_1 if manifest.schema < 2 else ()
    added = {_nested(name) for name in _ADDED_SINCE_1} if manifest.schema < 2 else set()
    known = {leaf.path for leaf in wanted}
    leaves = {leaf.path: leaf._replace(path=nest(leaf.path)) for leaf in manifest.leaves if leaf.path not in dropped}
    leaves = {path: leaf for path, leaf in leaves.items() if leaf.path in known or not _is_optional(leaf.path)}
    saved = {leaf.path for leaf in leaves.values()}
    absent = [leaf for leaf in wanted if leaf.path not in saved]
    return leaves, tuple(leaf for leaf in absent if leaf.path in added or _is_optional(leaf.path))


def _images(migrated: Mapping[str, Leaf], wanted: Sequence[Leaf]) -> dict[str, Leaf]:
    """Return the leaves that are images now; earlier versions stored observations as vectors of float32."""
    known = {leaf.path: leaf for leaf in wanted}
    pairs = [(leaf, known[leaf.path]) for leaf in migrated.values() if leaf.path in known]
    return {
        now.path: now
        for old, now in pairs
        if now.path.startswith("actors/") and now.path.endswith("obs")
        if len(now.shape) == len(old.shape) + 2 and math.prod(now.shape) == math.prod(old.shape)
    }


def _is_optional(path: str) -> bool:
    """Return whether a state may have or lack a leaf, which then is 0.

    Zeros in `actors/first/` count every episode when it ends, as earlier versions did; the leaves follow the metrics of
    the environment, which may change. The reference policy is zeros until `hmx.runs.reference` reads it from its file.
    """
    return path.startswith(("actors/first/", "learner/reference/"))


def _nested(path: str) -> str:
    """Return the current path of a leaf of schema 1 or 2."""
    parent = _PARENTS.get(path.partition("/")[0])
    return f"{parent}/{path}" if parent else path


def state_bytes(state: object) -> int:
    """Return the bytes of a state or a part of it (arrays, or their shapes)."""
    plain = jax.eval_shape(lambda tree: jax.tree.map(as_data, tree), state)
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(plain))
