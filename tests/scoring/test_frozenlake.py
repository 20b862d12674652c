"""Deterministic FrozenLake: scores are the gaps of the exact action values, in every state."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lake_values import CELLS, GAMMA, optimal_values

from hmx.env.frozenlake import SIDE, make_frozenlake
from hmx.scoring import Options, Positions, compare, make_policy, play, q_gap


def everywhere(env, taken):
    state, _ = env.reset(jax.random.split(jax.random.key(0), len(CELLS)))
    state = state._replace(core=jnp.asarray(CELLS))
    obs = jax.nn.one_hot(CELLS, SIDE * SIDE)[:, None]
    ids = jnp.asarray(CELLS, jnp.uint32)
    return Positions(state, obs, jnp.ones((len(CELLS), 1, 4), bool), jnp.asarray(taken)[:, None], ids)


def by_table(values, obs):
    return values[obs.argmax(-1)]


@cache
def player():
    env, options = make_frozenlake(0, slippery=False), Options(rollouts=1, gamma=float(GAMMA))
    policy = make_policy(by_table, "greedy")
    return jax.jit(lambda values, at, horizon: play(env, policy, values, at, jax.random.key(0), options, horizon))


def found(horizon, taken, **options):
    positions = everywhere(make_frozenlake(0, slippery=False), taken)
    outcomes = player()(jnp.asarray(optimal_values()), positions, horizon)
    return compare(outcomes, Options(rollouts=1, **options))


def test_the_start_is_worth_thirteen_steps_and_one():
    assert len(CELLS) == 53
    np.testing.assert_allclose(optimal_values()[0].max(), 0.99**13, rtol=1e-6)


@pytest.mark.parametrize("horizon", [20, 200])
def test_scores_are_the_gaps_of_the_optimal_values_in_all_states(horizon):
    values = optimal_values()[CELLS]
    taken = values.argmax(1).astype(np.int32)
    gaps = np.abs(values - values.max(1, keepdims=True))
    scores = found(horizon, taken)
    by_action = np.zeros_like(values)
    np.put_along_axis(by_action, np.asarray(scores.action[..., 0]), np.asarray(scores.divergence), 1)
    np.testing.assert_array_equal(by_action, gaps)
    np.testing.assert_allclose(scores.score, gaps.sum(1) / 3, rtol=2e-7)
    np.testing.assert_array_equal(scores.spread, gaps.max(1))


def test_a_horizon_of_ten_is_too_short():
    values = optimal_values()[CELLS]
    gaps = np.abs(values - values.max(1, keepdims=True)).sum(1) / 3
    scores = np.asarray(found(10, values.argmax(1).astype(np.int32)).score)
    assert np.abs(scores - gaps).max() > 0.8
    assert 0.2 < (scores == 0.0).mean() < 0.35


@pytest.mark.parametrize("aggregate", ["mean", "max"])
def test_the_gap_of_exact_values_is_the_score_of_rollouts(aggregate):
    """The proxy that rollouts have to beat: it cannot be beaten where the values are exact."""
    values = jnp.asarray(optimal_values()[CELLS])
    taken = np.asarray(values.argmin(1), np.int32)
    env, options = make_frozenlake(0, slippery=False), Options(aggregate=aggregate)
    legal, ids = jnp.ones((len(CELLS), 1, 4), bool), jnp.asarray(CELLS, jnp.uint32)
    gap = q_gap(env.spec, values[:, None], jnp.asarray(taken)[:, None], legal, ids, jax.random.key(0), options)
    np.testing.assert_allclose(gap, found(40, taken, aggregate=aggregate).score, rtol=1e-6)
