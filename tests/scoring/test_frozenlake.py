"""FrozenLake: scores against exact ones, in every state."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lake_values import CELLS, GAMMA, optimal_values, slippery_scores
from machine import options_of

from hmx.envs.small.frozenlake import SIDE, make_frozenlake
from hmx.reports.score_buffer import findings
from hmx.reports.score_buffer.measure import noise
from hmx.scoring import Positions, compare, make_continuation, play, q_gap
from hmx.stats.ranks import spearman


def everywhere(env, taken, times=1):
    """Every state that is no end, so many times each, with the action taken there."""
    cells = np.tile(CELLS, times)
    state, _ = env.reset(jax.random.split(jax.random.key(0), len(cells)))
    state = state._replace(core=jnp.asarray(cells))
    obs = jax.nn.one_hot(cells, SIDE * SIDE)[:, None]
    ids = jnp.arange(len(cells), dtype=jnp.uint32)
    return Positions(state, obs, jnp.ones((len(cells), 1, 4), bool), jnp.tile(jnp.asarray(taken), times)[:, None], ids)


def by_table(values, obs):
    return values[obs.argmax(-1)]


@cache
def player():
    env, options = make_frozenlake(0, slippery=False), options_of(rollouts=1, gamma=float(GAMMA))
    policy = make_continuation(by_table, "greedy", 0.0)
    return jax.jit(lambda values, at, horizon: play(env, policy, values, at, jax.random.key(0), options, horizon))


def found(horizon, taken, **options):
    positions = everywhere(make_frozenlake(0, slippery=False), taken)
    outcomes = player()(jnp.asarray(optimal_values()), positions, horizon)
    return compare(outcomes, options_of(rollouts=1, **options))


def test_start_value_is_known():
    assert len(CELLS) == 53
    np.testing.assert_allclose(optimal_values()[0].max(), 0.99**13, rtol=1e-6)


def test_scores_are_the_gaps_of_the_optimal_values_in_all_states():
    values = optimal_values()[CELLS]
    taken = values.argmax(1).astype(np.int32)
    gaps = np.abs(values - values.max(1, keepdims=True))
    scores = found(20, taken)
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
    env, options = make_frozenlake(0, slippery=False), options_of(aggregate=aggregate)
    legal, ids = jnp.ones((len(CELLS), 1, 4), bool), jnp.asarray(CELLS, jnp.uint32)
    positions = Positions(None, None, legal, jnp.asarray(taken)[:, None], ids)
    gap = q_gap(env.spec, values[:, None], positions, jax.random.key(0), options)
    np.testing.assert_allclose(gap, found(40, taken, aggregate=aggregate).score, rtol=1e-6)


HORIZON = 60
TAKEN = optimal_values()[CELLS].argmax(1).astype(np.int32)


def options_for(rollouts):
    return options_of(rollouts=rollouts, horizon=HORIZON, gamma=float(GAMMA), null=True)


@cache
def slippery(rollouts, times=1):
    """Scores of all states on slippery ice, each so many times; and the exact scores."""
    env, options = make_frozenlake(HORIZON, slippery=True), options_for(rollouts)
    logits = 20.0 * optimal_values()
    policy = make_continuation(by_table, "softmax", 1.0)
    positions = everywhere(env, TAKEN, times)
    outcomes = jax.jit(lambda key: play(env, policy, jnp.asarray(logits), positions, key, options))(jax.random.key(7))
    probs = np.exp(logits - logits.max(1, keepdims=True))
    exact = slippery_scores(probs / probs.sum(1, keepdims=True), TAKEN, HORIZON)
    return jax.tree.map(np.asarray, compare(outcomes, options)), np.tile(exact, times)


def noise_of(scores, rollouts):
    columns = {"halves": scores.halves.T, "bias": scores.bias, "null": scores.null}
    return noise(columns, options_for(rollouts))


def test_estimated_bias_is_what_noise_adds_to_scores():
    found, exact = slippery(16, times=2)
    added = found.score.mean() - exact.mean()
    assert added > 0.3 * exact.mean()
    assert found.bias.mean() == pytest.approx(added, rel=0.35)


def test_standard_error_is_the_error_against_exact_scores_including_bias():
    found, exact = slippery(16, times=2)
    rmse = np.sqrt(np.square(found.score - exact).mean())
    assert 0.7 * rmse < noise_of(found, 16).standard_error < 1.6 * rmse


def test_uncorrected_scores_rank_better_and_are_therefore_the_default():
    found, exact = slippery(16, times=2)
    assert spearman(found.score, exact) > spearman(found.score - found.bias, exact) + 0.05


@pytest.mark.thorough
def test_only_trusted_rankings_agree_with_exact_scores():
    for rollouts, trusted in ((16, False), (256, True)):
        found, exact = slippery(rollouts, times=2 if rollouts == 16 else 1)
        assert (noise_of(found, rollouts).reliability >= findings.LEAST_RELIABILITY) is trusted
        if trusted:
            assert spearman(found.score, exact) > 0.85
