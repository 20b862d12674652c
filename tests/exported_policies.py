"""Policies of random weights, and how hmx itself plays them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hmx.algos.types import TrainState
from hmx.config.fields import replace
from hmx.config.schema import Config
from hmx.runs.session import Session, open_session

SMALL = {"env.num_envs": 8, "net.hidden": (8,)}
RECURRENT = {"env.id": "pendulum", "net.rnn": "gru", "net.rnn_hidden": 8, "ppo.obs_norm": "network"}
"""A policy with everything: continuous actions in the units of the environment, a hidden state and a normaliser."""


def small_session(changes: dict[str, Any]) -> Session:
    """Open the session of a small network."""
    return open_session(replace(Config(), {**SMALL, **changes}))


def made_state(session: Session) -> TrainState:
    """A state of random parameters; the environments in it are not real, since a policy reads none of them."""
    rng = np.random.default_rng(1)

    def fill(leaf: Any) -> Any:
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.random.key(0)
        if jnp.issubdtype(leaf.dtype, jnp.floating):
            return jnp.asarray(rng.uniform(0.1, 0.5, leaf.shape), leaf.dtype)
        return jnp.full(leaf.shape, 9, leaf.dtype)

    state = jax.tree.map(fill, session.abstract._replace(actors=None))
    params = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape) / 4, leaf.dtype), state.params)
    stats = session.abstract.actors.obs_stats
    stats = None if stats is None else jax.tree.map(fill, stats)
    return state._replace(params=params, actors=session.abstract.actors._replace(obs_stats=stats))


def played(session: Session, state: TrainState, steps: list[dict[str, np.ndarray]]) -> list[list[np.ndarray]]:
    """Play steps of inputs `[B, ...]` as hmx does; return action, probabilities if any, and value of each step.

    `reset` defaults to false, and the hidden state is passed on.
    """
    solo = session.env.spec.num_agents == 1
    batch = len(steps[0]["obs"])
    carry = session.algorithm.initial_carry((batch, session.env.spec.num_agents))
    act = jax.jit(session.algorithm.act, static_argnums=6)
    results = []
    for step in steps:
        obs, mask = jnp.asarray(step["obs"]), jnp.asarray(step.get("mask", np.zeros((batch, 0), bool)))
        reset = jnp.asarray(step.get("reset", np.zeros(batch, bool)))
        wide = [array[:, None] for array in (obs, mask)] if solo else [obs, mask]
        decision, carry = act(state, carry, *wide, reset, jax.random.key(3), True)
        outputs = [decision.action, *([decision.probs] if mask.shape[-1] else []), decision.value]
        results.append([np.asarray(array)[:, 0] if solo else np.asarray(array) for array in outputs])
    return results
