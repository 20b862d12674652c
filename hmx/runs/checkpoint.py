"""Checkpoints: the whole state of a run as named arrays, complete or not there at all."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np

from hmx.agents.types import TrainState
from hmx.errors import ExitCode, HmxError
from hmx.records import checkpoints as records
from hmx.records.atomic import sync_folder
from hmx.records.checkpoints import Leaf
from hmx.runs.signals import interruptible
from hmx.types import Array

ARRAYS = "arrays"  # the orbax folder inside a checkpoint

Leaves = dict[str, np.ndarray[Any, Any]]


def leaf_names(state: TrainState) -> list[str]:
    """The path of every leaf of a state, `params/torso/kernel` for example, in the order of `jax.tree.leaves`."""
    paths = [path for path, _ in jax.tree_util.tree_flatten_with_path(state)[0]]
    names = [jax.tree_util.keystr(path, simple=True, separator="/") for path in paths]
    if len(set(names)) == len(names):
        return names
    return [jax.tree_util.keystr(path) for path in paths]


def _is_key(leaf: Any) -> bool:
    return bool(jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key))


def describe(state: TrainState) -> tuple[Leaf, ...]:
    """Path, shape and dtype of every leaf; a typed key has a dtype like `key<fry>`."""
    leaves = jax.tree.leaves(state)
    return tuple(Leaf(n, tuple(x.shape), str(x.dtype)) for n, x in zip(leaf_names(state), leaves, strict=True))


def to_host(state: TrainState) -> Leaves:
    """A copy of every leaf in host memory, keys as their data: it outlives the donation of the state."""
    plain = [jax.random.key_data(leaf) if _is_key(leaf) else leaf for leaf in jax.tree.leaves(state)]
    return {name: np.array(leaf) for name, leaf in zip(leaf_names(state), jax.device_get(plain), strict=True)}


def from_host(leaves: Leaves, abstract: TrainState) -> TrainState:
    """The inverse of `to_host`, for a state of the shapes of `abstract`."""
    named = zip(leaf_names(abstract), jax.tree.leaves(abstract), strict=True)
    return jax.tree.unflatten(jax.tree.structure(abstract), [_revive(leaves[name], leaf) for name, leaf in named])


def _revive(value: np.ndarray[Any, Any], like: Any) -> Array:
    # A copy, since a device array may otherwise borrow memory that donation would then overwrite.
    array = jax.numpy.array(value)
    return jax.random.wrap_key_data(array, impl=_impl(like)) if _is_key(like) else array


def _impl(key: Any) -> str:
    # `jax.random.key_impl` takes arrays only, and an abstract state has none.
    for name in ("threefry2x32", "rbg", "unsafe_rbg"):
        if jax.random.key(0, impl=name).dtype == key.dtype:
            return name
    raise ValueError(f"a key of unknown kind, {key.dtype}")


def save(
    folder: Path,
    state: TrainState,
    update: int,
    keep: int,
    env_steps: int = 0,
    shape_digest: str = "",
    config_digest: str = "",
) -> Path:
    """Writes `state` to `folder/<update>`, then deletes all but the newest `keep` checkpoints.

    The checkpoint is written beside its final name, its manifest last, flushed to disk and renamed, so that
    a folder with a number for a name is complete at any moment the process may die. Older checkpoints go
    only after that.

    Raises:
        HmxError: the folder cannot be written; the older checkpoints are all still there.
    """
    final = folder / str(update)
    temporary = folder / f".tmp-{update}-{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for stale in folder.glob(".tmp-*"):
            shutil.rmtree(stale)
        temporary.mkdir()
        leaves = to_host(state)
        interruptible(lambda: _write_arrays(temporary / ARRAYS, leaves))
        records.write_manifest(temporary, update, env_steps, shape_digest, config_digest, describe(state))
        _sync(temporary)
        if final.exists():
            # rename cannot replace a folder that is not empty
            os.rename(final, folder / f".tmp-replaced-{update}")
        os.rename(temporary, final)
        sync_folder(folder)
        for old in (*folder.glob(".tmp-*"), *records.surplus(folder, keep)):
            shutil.rmtree(old)
    except (OSError, ValueError) as error:
        hint = "check the free space and the permissions of the folder; checkpoints already there are untouched"
        raise HmxError(f"checkpoint {final} cannot be written: {_reason(error)}", hint, ExitCode.ARTEFACT) from error
    return final


def restore(path: Path, abstract: TrainState) -> TrainState:
    """The state saved at `path`, bit for bit, in the structure of `abstract` (arrays, or their shapes).

    Raises:
        HmxError: the saved leaves are not those of `abstract` (each one that differs is named), or the
            checkpoint cannot be read (exit code 3).
    """
    manifest = records.read_manifest(path)
    problems = records.leaf_differences(manifest.leaves, describe(abstract))
    if problems:
        shown = problems[:8] + ([f"and {len(problems) - 8} more"] if len(problems) > 8 else [])
        message = "\n".join([f"checkpoint {path} does not fit this configuration:", *(f"  {line}" for line in shown)])
        hint = "use the run's own run.toml, and the version of hmx that its meta.json names"
        raise HmxError(message, hint, ExitCode.ARTEFACT)
    try:
        leaves = interruptible(lambda: _read_arrays(path / ARRAYS, manifest.leaves))
        return from_host(leaves, abstract)
    except Exception as error:  # orbax and tensorstore raise whatever they meet in a damaged file
        hint = "another checkpoint of the run may be intact; `hmx resume` takes the newest that is"
        raise HmxError(f"checkpoint {path} cannot be read: {_reason(error)}", hint, ExitCode.ARTEFACT) from error


def set_aside(checkpoint: Path) -> Path:
    """Renames a damaged checkpoint, so that neither resuming nor the count of those kept sees it again."""
    target = checkpoint.with_name(f"{checkpoint.name}.damaged")
    if target.exists():
        shutil.rmtree(target)
    checkpoint.rename(target)
    return target


def _write_arrays(path: Path, leaves: Leaves) -> None:
    import orbax.checkpoint as ocp

    # Tensorstore has no arrays of size 0; their shape in the manifest is all there is to them.
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as writer:
        writer.save(path.absolute(), {name: leaf for name, leaf in leaves.items() if leaf.size})


def _read_arrays(path: Path, saved: tuple[Leaf, ...]) -> Leaves:
    import orbax.checkpoint as ocp

    empty = {leaf.path: np.zeros(leaf.shape, np.dtype(leaf.dtype)) for leaf in saved if 0 in leaf.shape}
    names = [leaf.path for leaf in saved if leaf.path not in empty]
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as reader:
        found = reader.restore(
            path.absolute(),
            item=dict.fromkeys(names, 0),
            restore_args={name: ocp.RestoreArgs(restore_type=np.ndarray) for name in names},
        )
    return {**found, **empty}


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
