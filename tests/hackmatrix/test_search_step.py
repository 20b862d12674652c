"""The step for a search against the step of training."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hmx.config.schema import EnvConfig, RewardWeights
from hmx.envs.hackmatrix.env import make_hackmatrix
from hmx.envs.protocol import select

pytestmark = pytest.mark.slow
ENVS, STEPS = 64, 100
ENV = make_hackmatrix(EnvConfig(max_steps=25, rules="original"), RewardWeights())


def _both(carry: Any, keys: Any) -> Any:
    """Step once in both ways; return how often what counts differs, and how many episodes ended and stages began."""
    assert ENV.play is not None
    (state, seen), (k_act, k_env) = carry, keys
    action = jax.random.categorical(k_act, jnp.where(seen.legal[:, 0], 0.0, -jnp.inf), axis=-1)[:, None]
    env_keys = jax.random.split(k_env, ENVS)
    after, now = ENV.step(state, action, env_keys)
    played, search = ENV.play(state, action, jax.random.clone(env_keys))
    ended = now.terminated | now.truncated
    last = now.final_obs, now.final_legal
    same = select(ended, after, played, ENV.spec.state_axis), select(now.terminated, last, search[:2])
    ends, expected_ends = (search.terminated, search.truncated), (now.terminated, now.truncated)
    differences = jax.tree.map(lambda a, b: (a != b).sum(), (same, ends), ((after, last), expected_ends))
    rounding = 1e-6 * (1.0 + jnp.abs(now.reward))  # the two programs may add the terms in another order
    off = (jnp.abs(search.reward - now.reward) > rounding).sum()
    entered = (after.game.stage > state.game.stage) & ~ended
    return (after, now), ((differences, off), now.terminated.sum(), now.truncated.sum(), entered.sum())


def test_search_step_equals_the_step_without_its_reset():
    assert ENV.spec.later_reset is not None
    first = ENV.spec.later_reset(jax.random.split(jax.random.key(0), ENVS))
    keys = jax.random.split(jax.random.key(1), STEPS), jax.random.split(jax.random.key(2), STEPS)
    _, (differences, *events) = jax.jit(lambda carry, keys: jax.lax.scan(_both, carry, keys))(first, keys)
    assert sum(int(np.sum(leaf)) for leaf in jax.tree.leaves(differences)) == 0
    assert min(int(np.sum(leaf)) for leaf in events) > 0
