"""The preset `consequence`: the numbers of its specification, and the priorities and weights that follow from them."""

import jax
import numpy as np
import pytest
from training import hypers_of

from hmx.algos.build import make_algorithm
from hmx.algos.dqn.sizes import scored_per_pass
from hmx.algos.dqn.update import make_dqn_components
from hmx.config.fields import replace
from hmx.config.schema import RewardWeights
from hmx.envs.registry import make_env
from hmx.registry.load import load

SMALL = {
    "run.total_steps": 4000, "net.hidden": (8,), "replay.capacity": 400, "dqn.learn_starts": 160, "score.every": 3,
    "score.transitions": 40, "score.chunk": 20, "score.rollouts": 2, "score.horizon": 4,
}  # fmt: skip


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
def trained():
    """The preset with a smaller buffer after two scoring passes, and its parts."""
    cfg = replace(load("consequence", environ={}).config, SMALL)
    env = make_env(cfg.env, RewardWeights())
    algorithm = make_algorithm(cfg, env)
    state, update, passes = jax.jit(algorithm.init)(jax.random.key(0)), jax.jit(algorithm.update), 0
    for number in range(9):
        state, metrics = update(state, hypers_of(algorithm, number))
        passes += float(metrics["score/mean"].count) > 0
    assert passes == 2
    return make_dqn_components(cfg, env).replay, state.learner.replay


def formula(state):
    """Half by |TD error| + 0.01 to the power of 0.25, half by score; unscored transitions count like the mean score."""
    size = int(state.size)
    errors, scores, scored = (np.asarray(x)[:size] for x in (state.td_errors, state.consequence_scores, state.scored))
    by_error = (errors.astype(np.float64) + 0.01) ** 0.25
    mean = scores[scored].mean(dtype=np.float64)
    by_score = np.where(scored, scores.astype(np.float64) + 0.01 * mean, 1.01 * mean)
    return 0.5 * by_score / by_score.sum() + 0.5 * by_error / by_error.sum()


def test_priorities_after_updates_follow_the_formula(trained):
    replay, state = trained
    scored = np.asarray(state.scored)[: int(state.size)]
    assert 0 < scored.sum() < len(scored)
    assert len(np.unique(np.asarray(state.td_errors)[: len(scored)])) > 100
    assert np.asarray(state.consequence_scores)[: len(scored)][scored].std() > 0
    expected = formula(state)
    np.testing.assert_allclose(np.asarray(replay.probs(state))[: len(expected)], expected, rtol=1e-4)


def test_batches_are_distinct_and_fully_corrected(trained):
    replay, state = trained
    expected, sample = formula(state), jax.jit(lambda key: replay.sample(state, key, 64, 1.0))
    for seed in range(5):
        batch = sample(jax.random.key(seed))
        index = np.asarray(batch.index)
        assert len(set(index.tolist())) == 64 and index.max() < len(expected)
        np.testing.assert_allclose(batch.probs, expected[index], rtol=1e-4)
        weights = 1.0 / (len(expected) * expected[index])
        np.testing.assert_allclose(batch.weights, weights / weights.max(), rtol=1e-4)
