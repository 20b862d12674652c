"""The preset `consequence`: the numbers of its specification, and the priorities and weights that follow from them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hmx.algos.dqn.sizes import scored_per_pass
from hmx.algos.dqn.update import make_dqn_components
from hmx.config.fields import replace
from hmx.config.schema import RewardWeights
from hmx.envs.registry import make_env
from hmx.registry.load import load
from hmx.replay import blank

CAPACITY = 390


def test_numbers_are_those_of_the_specification():
    """A chunk is 100 gradient steps; 1,000 transitions are scored every 10 chunks."""
    cfg = load("consequence", environ={}).config
    assert cfg.env.id == "frozenlake-slippery" and cfg.algo.name == "dqn"
    replay = cfg.replay
    assert (replay.mixing, replay.mu, replay.alpha_td, replay.eps_td) == ("additive", 0.5, 0.25, 0.01)
    assert (replay.is_beta, replay.is_beta_end, replay.is_norm) == (1.0, 1.0, "max")
    assert replay.alpha_c == 1.0 and replay.replacement is False
    assert cfg.run.updates_per_chunk * cfg.dqn.gradient_steps == 100
    assert cfg.score.every == 10 * cfg.run.updates_per_chunk
    assert scored_per_pass(cfg.score, cfg.env.num_envs * cfg.algo.num_steps) == 1000
    assert (cfg.score.actions, cfg.score.selection) == ("single", "uniform")


@pytest.fixture(scope="module")
def filled():
    """The replay of the preset with a small buffer, full of transitions, and scores of a third of them."""
    cfg = replace(load("consequence", environ={}).config, {"replay.capacity": CAPACITY})
    env, num_envs = make_env(cfg.env, RewardWeights()), cfg.env.num_envs
    replay, spec, rng = make_dqn_components(cfg, env).replay, env.spec, np.random.default_rng(0)
    env_states, _ = jax.jit(env.reset)(jax.random.split(jax.random.key(0), num_envs))
    items = blank(num_envs, 1, spec.obs_shape, spec.obs_dtype, spec.num_actions)
    state, add, every = jax.jit(replay.init)(items, env_states), jax.jit(replay.add), jnp.arange(CAPACITY)
    for _ in range(CAPACITY // num_envs):
        state = add(state, items, env_states)
    errors, scores = (jnp.asarray(rng.exponential(size=CAPACITY), jnp.float32) for _ in range(2))
    state = jax.jit(replay.set_priority)(state, every, state.birth, errors)
    return replay, jax.jit(replay.set_scores)(state, every[::3], state.birth[::3], scores[::3])


def formula(state):
    """Half by |TD error| + 0.01 to the power of 0.25, half by score; unscored transitions count like the mean score."""
    size = int(state.size)
    errors, scores, scored = (np.asarray(x)[:size] for x in (state.td_errors, state.consequence_scores, state.scored))
    by_error = (errors.astype(np.float64) + 0.01) ** 0.25
    mean = scores[scored].mean(dtype=np.float64)
    by_score = np.where(scored, scores.astype(np.float64) + 0.01 * mean, 1.01 * mean)
    return 0.5 * by_score / by_score.sum() + 0.5 * by_error / by_error.sum()


def test_priorities_follow_the_formula(filled):
    replay, state = filled
    assert int(state.scored.sum()) == CAPACITY / 3
    np.testing.assert_allclose(jax.jit(replay.probs)(state), formula(state), rtol=1e-4)


def test_batches_are_distinct_and_fully_corrected(filled):
    replay, state = filled
    expected, sample = formula(state), jax.jit(lambda key: replay.sample(state, key, 64, 1.0))
    for seed in range(5):
        batch = sample(jax.random.key(seed))
        index = np.asarray(batch.index)
        assert len(set(index.tolist())) == 64 and index.max() < len(expected)
        np.testing.assert_allclose(batch.probs, expected[index], rtol=1e-4)
        weights = 1.0 / (len(expected) * expected[index])
        np.testing.assert_allclose(batch.weights, weights / weights.max(), rtol=1e-4)
