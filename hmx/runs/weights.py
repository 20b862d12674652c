"""The learned parameters of a run in one safetensors file, to play with or to start another run from."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hmx.algos.types import TrainState
from hmx.config import codec
from hmx.config.files import MAX_BYTES, open_limited
from hmx.errors import ExitCode, HmxError, one_line
from hmx.runs.checkpoint import copied
from hmx.runs.session import Session


def to_bytes(session: Session, state: TrainState, about: dict[str, str]) -> bytes:
    """Return parameters and the statistics that scale observations and values, named by their path."""
    from safetensors.numpy import save

    arrays = {name: np.asarray(leaf) for name, leaf in named(state).items()}
    return bytes(save(arrays, {**about, "shape_digest": codec.shape_digest(session.cfg)}))


def from_bytes(state: TrainState, data: bytes) -> TrainState:
    """Return a state with the learned arrays that `to_bytes` wrote for it or for another state of its session."""
    from safetensors.numpy import load

    return replace(state, load(data))


def read(session: Session, path: Path) -> tuple[TrainState, int]:
    """Read a policy; return a state with its arrays and 0 elsewhere, and its update.

    Raises:
        HmxError: the file is damaged, or belongs to another configuration or other rules (exit code 3).
    """
    from safetensors import SafetensorError, safe_open

    hint = "export it again: hmx export RUN --to safetensors"
    wanted = sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in named(session.abstract).values())
    try:
        os.close(open_limited(path, MAX_BYTES + 2 * wanted))  # a pipe would block, and a large file fill the memory
        with safe_open(path, "numpy") as file:
            about = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is not a mapping
        if not (update := about.get("update", "")).isdecimal():
            raise ValueError("it does not name its update")
    except (SafetensorError, OSError, ValueError) as problem:
        raise HmxError(f"cannot read the policy {path}: {one_line(problem)}", hint, ExitCode.ARTEFACT) from None
    differs = differences(session.abstract, arrays)
    if differs or about.get("shape_digest", codec.shape_digest(session.cfg)) != codec.shape_digest(session.cfg):
        what = differs[0] if differs else "observations or network have changed since it was exported"
        raise HmxError(f"cannot use the policy {path}: it does not fit its run.toml: {what}", hint, ExitCode.ARTEFACT)
    return replace(jax.tree.map(_blank, session.abstract), arrays), int(update)


def replace(state: TrainState, arrays: Mapping[str, Any]) -> TrainState:
    """Return a state with copies of the learned arrays of another; their names and shapes must be the same."""
    parts = _parts(state)
    found = jax.tree.unflatten(jax.tree.structure(parts), [copied(arrays[name]) for name in named(state)])
    state = state._replace(params=found["params"], actors=state.actors._replace(obs_stats=found["obs_stats"]))
    if found["value_stats"] is not None:
        state = state._replace(learner=state.learner._replace(value_stats=found["value_stats"]))
    if hasattr(state.learner, "target_params"):  # of Q-learning
        target = jax.tree.map(copied, found["params"])
        state = state._replace(learner=state.learner._replace(target_params=target))
    return state


def differences(state: TrainState, arrays: Mapping[str, Any]) -> list[str]:
    """Return the differences of learned arrays from those of a state in name, shape or dtype, one line each."""
    wanted, given = (
        {name: f"{np.dtype(leaf.dtype)} {list(leaf.shape)}" for name, leaf in tree.items()}
        for tree in (named(state), arrays)
    )
    return [
        f"{name} is " + (f"{given.get(name, 'missing')} instead of {wanted[name]}" if name in wanted else "unexpected")
        for name in sorted({*wanted, *given})
        if wanted.get(name) != given.get(name)
    ]


def _parts(state: TrainState) -> dict[str, Any]:
    return {
        "obs_stats": state.actors.obs_stats,
        "params": state.params,
        "value_stats": getattr(state.learner, "value_stats", None),
    }


def named(state: TrainState) -> dict[str, Any]:
    """Return parameters and statistics of observations and values by their path."""
    leaves = jax.tree_util.tree_leaves_with_path(_parts(state))
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}


def _blank(leaf: jax.ShapeDtypeStruct) -> Any:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.split(jax.random.key(0), leaf.shape) if leaf.shape else jax.random.key(0)
    return np.zeros(leaf.shape, leaf.dtype)
