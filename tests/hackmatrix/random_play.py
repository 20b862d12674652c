"""Uniformly random legal play of the environment, batched, in compiled chunks."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hmx.config.schema import EnvConfig, RewardWeights
from hmx.envs.hackmatrix.env import make_hackmatrix
from hmx.envs.hackmatrix.observation import parts

ENVS, CHUNK = 512, 20
ENV = make_hackmatrix(EnvConfig(max_steps=0, rules="original"), RewardWeights())


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


def _step(carry: Any, keys: Any) -> tuple[Any, Step]:
    (state, shown), (k_act, k_env) = carry, keys
    legal = shown.legal[:, 0]
    action = jax.random.categorical(k_act, jnp.where(legal, 0.0, -jnp.inf), axis=-1)
    after, ts = ENV.step(state, action[:, None], jax.random.split(k_env, legal.shape[0]))
    player, programs, grid = parts(ts.obs[:, 0])
    bounded = jnp.concatenate([player[:, :6], player[:, 8:], programs, grid.reshape(grid.shape[0], -1)], axis=-1)
    before = state.game._replace(history=jnp.zeros(()))
    step = Step(
        before,
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
    return (after, ts), step


@jax.jit
def _chunk(carry: Any, key: jax.Array) -> tuple[Any, Step]:
    k_act, k_env = jax.random.split(key)
    return jax.lax.scan(_step, carry, (jax.random.split(k_act, CHUNK), jax.random.split(k_env, CHUNK)))


@functools.cache
def _reset() -> Any:
    return jax.jit(ENV.reset)


def play(seed: int, chunks: int, keep_states: int) -> list[Step]:
    """Chunks of random play; the first `keep_states` chunks come with their states."""
    carry = _reset()(jax.random.split(jax.random.key(seed), ENVS))
    result = []
    for c in range(chunks):
        carry, steps = _chunk(carry, jax.random.fold_in(jax.random.key(seed + 1), c))
        if c >= keep_states:
            steps = steps._replace(game=None, obs=None, legal=None)
        result.append(jax.tree.map(np.asarray, steps))
    return result
