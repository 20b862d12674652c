"""Uniformly random legal play of the environment, batched, in chunks of steps."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from probe import BATCH, ENV

from hmx.envs.hackmatrix.observation import parts
from hmx.types import Timestep

ENVS, CHUNK = BATCH, 20


class Step(NamedTuple):
    """One step of all games: the state before, the action, what came of it. Arrays [T, ..., ENVS] of states,
    [T, ENVS, ...] of all else."""

    game: Any  # without its history
    obs: jax.Array  # after the action, packed
    legal: jax.Array
    action: jax.Array
    reward: jax.Array
    terms: dict[str, jax.Array]
    terminated: jax.Array
    stage: jax.Array  # at the end of the step
    overflow: jax.Array
    low: jax.Array  # the smallest number of the observation
    high: jax.Array  # the largest of the grid, and of the player features that stay below 1


@jax.jit
def draw(legal: jax.Array, k_act: jax.Array, k_env: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A legal action and a key for every game."""
    action = jax.random.categorical(k_act, jnp.where(legal, 0.0, -jnp.inf), axis=-1)
    return action, jax.random.split(k_env, legal.shape[0])


@jax.jit
def _seen(game: Any, legal: jax.Array, action: jax.Array, ts: Timestep) -> Step:
    player, programs, grid = parts(ts.obs[:, 0])
    bounded = jnp.concatenate([player[:, :6], player[:, 8:], programs, grid.reshape(grid.shape[0], -1)], axis=-1)
    return Step(
        game._replace(history=jnp.zeros(())),
        ts.obs[:, 0],
        legal,
        action,
        ts.reward[:, 0],
        ts.terms,
        ts.terminated,
        ts.info["highest_stage_max"],
        ts.info["overflow_sum"],
        jnp.minimum(bounded.min(-1), player.min(-1)),
        bounded.max(-1),
    )


def play(seed: int, chunks: int, keep_states: int) -> list[Step]:
    """Chunks of random play; the first `keep_states` chunks come with their states."""
    state, timestep = ENV.reset(jax.random.split(jax.random.key(seed), ENVS))
    result = []
    for c in range(chunks):
        k_act, k_env = jax.random.split(jax.random.fold_in(jax.random.key(seed + 1), c))
        steps = []
        for keys in zip(jax.random.split(k_act, CHUNK), jax.random.split(k_env, CHUNK), strict=True):
            game, legal = state.game, timestep.legal[:, 0]
            action, env_keys = draw(legal, *keys)
            state, timestep = ENV.step(state, action[:, None], env_keys)
            step = _seen(game, legal, action, timestep)
            kept = step if c < keep_states else step._replace(game=None, obs=None, legal=None)
            steps.append(jax.tree.map(np.asarray, kept))
        result.append(jax.tree.map(lambda *leaves: np.stack(leaves), *steps))
    return result
