"""The step for a search against the step of training."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probe import BATCH, ENV, LIMIT, new_later_games
from random_play import draw

from hmx.envs.hackmatrix.env import HackMatrixState
from hmx.envs.protocol import select
from hmx.types import Timestep

pytestmark = pytest.mark.slow
STEPS = 25


@jax.jit
def _differences(
    state: HackMatrixState, after: HackMatrixState, now: Timestep, played: HackMatrixState, search: Timestep
) -> Any:
    """How often what counts differs, and how many episodes ended and stages began."""
    ended = now.terminated | now.truncated
    last, found = (now.final_obs, now.final_legal), (search.obs, search.legal)
    same = select(ended, after, played, ENV.spec.state_axis), select(now.terminated, last, found)
    ends, expected_ends = (search.terminated, search.truncated), (now.terminated, now.truncated)
    differences = jax.tree.map(lambda a, b: (a != b).sum(), (same, ends), ((after, last), expected_ends))
    rounding = 1e-6 * (1.0 + jnp.abs(now.reward))  # the two programs may add the terms in another order
    off = (jnp.abs(search.reward - now.reward) > rounding).sum()
    entered = (after.game.stage > state.game.stage) & ~ended
    return (differences, off), (now.terminated.sum(), now.truncated.sum(), entered.sum())


@jax.jit
def _aged(state: HackMatrixState) -> HackMatrixState:
    """The games shortly before the step limit: a new episode has 10 steps left."""
    return state._replace(steps=jnp.maximum(state.steps, LIMIT - 10))


def test_search_step_equals_the_step_without_its_reset():
    assert ENV.play is not None
    state, now = new_later_games(jax.random.split(jax.random.key(0), BATCH))
    counts = []
    for turn in range(STEPS):
        k_act, k_env = jax.random.split(jax.random.fold_in(jax.random.key(1), turn))
        action, keys = draw(now.legal[:, 0], k_act, k_env)
        before = _aged(state)
        state, now = ENV.step(before, action[:, None], keys)
        played, search = ENV.play(before, action[:, None], jax.random.clone(keys))
        counts.append(_differences(before, state, now, played, search))
    differences, events = jax.tree.map(lambda *leaves: int(np.sum(leaves)), *counts)
    assert sum(jax.tree.leaves(differences)) == 0
    assert min(events) > 0
