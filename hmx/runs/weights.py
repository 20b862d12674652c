"""The weights of a policy in one safetensors file: what `hmx export` writes, and what a policy is played from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hmx.agents.types import TrainState
from hmx.config import codec
from hmx.errors import ExitCode, HmxError
from hmx.runs.session import Session


def to_bytes(session: Session, state: TrainState, about: dict[str, str]) -> bytes:
    """Return parameters and the statistics that scale observations and values, named by their path."""
    from safetensors.numpy import save

    arrays = {name: np.asarray(leaf) for name, leaf in _named(state).items()}
    data: bytes = save(arrays, {**about, "shape_digest": codec.shape_digest(session.cfg)})
    return data


def read(session: Session, path: Path) -> tuple[TrainState, int]:
    """Read a policy; return a state that holds it, otherwise 0 everywhere, and the update that it is of.

    Raises:
        HmxError: the file is damaged, or is not of this configuration or these rules (exit code 3).
    """
    from safetensors import SafetensorError, safe_open

    hint = "export it again: hmx export RUN --to safetensors"
    try:
        with safe_open(path, "numpy") as file:
            about = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
        if not (update := about.get("update", "")).isdecimal():
            raise ValueError("it does not say of which update it is")
    except (SafetensorError, OSError, ValueError) as problem:
        words = " ".join(str(problem).split())[:200]
        raise HmxError(f"cannot read the policy {path}: {words}", hint, ExitCode.ARTEFACT) from None
    wanted = _named(session.abstract)
    forms = {name: (tuple(leaf.shape), np.dtype(leaf.dtype)) for name, leaf in wanted.items()}
    differs = sorted(
        name
        for name in {*forms, *arrays}
        if name not in arrays or forms.get(name) != (arrays[name].shape, arrays[name].dtype)
    )
    if differs or about.get("shape_digest", codec.shape_digest(session.cfg)) != codec.shape_digest(session.cfg):
        what = f"{differs[0]} differs" if differs else "observations or network have changed since it was exported"
        raise HmxError(f"cannot use the policy {path}: it does not fit its run.toml: {what}", hint, ExitCode.ARTEFACT)
    found = jax.tree_util.tree_unflatten(jax.tree.structure(_parts(session.abstract)), [arrays[name] for name in forms])
    blank: TrainState = jax.tree.map(_blank, session.abstract)
    state = blank._replace(params=found["params"], actors=blank.actors._replace(obs_stats=found["obs_stats"]))
    if found["value_stats"] is not None:
        state = state._replace(learner=state.learner._replace(value_stats=found["value_stats"]))
    return state, int(update)


def _parts(state: TrainState) -> dict[str, Any]:
    return {
        "obs_stats": state.actors.obs_stats,
        "params": state.params,
        "value_stats": getattr(state.learner, "value_stats", None),
    }


def _named(state: TrainState) -> dict[str, Any]:
    leaves = jax.tree_util.tree_leaves_with_path(_parts(state))
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}


def _blank(leaf: jax.ShapeDtypeStruct) -> Any:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.split(jax.random.key(0), leaf.shape) if leaf.shape else jax.random.key(0)
    return np.zeros(leaf.shape, leaf.dtype)
