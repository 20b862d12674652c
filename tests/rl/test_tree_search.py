"""Gumbel search against mctx, the implementation of its authors, and against values known exactly."""

import runpy
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hmx.rl.tree_search import Judged, Simulated, considered_visits, first_highest, search

ACTIONS, CODES, LANES = 6, 4096, 64
SEARCH_COST = Path(__file__).parents[2] / "benchmarks" / "search_cost.py"


def world(seed):
    """A deterministic world of numbered positions: log-probabilities, values, next positions, rewards, discounts."""
    rng = np.random.default_rng(seed)
    return (
        jax.nn.log_softmax(rng.normal(0, 2, (CODES, ACTIONS)).astype(np.float32)),
        jnp.asarray(rng.normal(0, 1, CODES), jnp.float32),
        jnp.asarray(rng.integers(0, CODES, (CODES, ACTIONS))),
        jnp.asarray(rng.normal(0, 1, (CODES, ACTIONS)), jnp.float32),
        jnp.asarray(rng.choice([0.0, 0.9, 1.0], (CODES, ACTIONS), p=[0.1, 0.5, 0.4]), jnp.float32),
    )


def judge(tables, code):
    """The position has its batch first in one leaf, and last in the other."""
    log_probs, value, *_ = tables
    return Judged(log_probs[code], value[code], {"code": code, "copies": jnp.stack([code, code])})


def simulate(tables, key, action, position):
    _, _, step, reward, discount = tables
    code = position["copies"][1]
    return Simulated(reward[code, action], discount[code, action], judge(tables, step[code, action]))


def scale(values, visits):
    return (0.5 + 0.1 * visits) * values


@pytest.mark.parametrize(
    ("seed", "num_simulations", "max_considered", "greedy"),
    [(0, 1, 16, False), (2, 16, 2, True), (4, 50, 16, True), (5, 64, 4, False)],
)
def test_search_equals_the_reference_implementation(seed, num_simulations, max_considered, greedy):
    by_mctx = runpy.run_path(str(SEARCH_COST))["by_mctx"]
    tables = world(seed)
    root = judge(tables, jnp.arange(LANES))
    legal = jnp.asarray(np.random.default_rng(seed).random((LANES, ACTIONS)) < 0.6).at[:, 2].set(True)

    def find(used):
        sizes = {"num_simulations": num_simulations, "max_considered": max_considered, "greedy": greedy}
        axes = {"code": 0, "copies": -1}
        play = jax.jit(lambda key: used(key, root, legal, partial(simulate, tables), scale, axes=axes, **sizes))
        return play(jax.random.key(3))

    ours = find(search)
    with jax.numpy_rank_promotion("allow"), jax.debug_key_reuse(False):
        theirs = find(by_mctx)
    np.testing.assert_array_equal(ours.visits, theirs.visits)
    np.testing.assert_array_equal(ours.action, theirs.action)
    np.testing.assert_allclose(ours.probs, theirs.probs, rtol=2e-4, atol=1e-6)
    np.testing.assert_allclose(ours.value, theirs.value, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("actions", [1, 2, 5, 28])
def test_first_of_equal_scores_is_the_highest(actions):
    scores = np.random.default_rng(0).integers(0, 3, (50, actions)).astype(np.float32)
    scores[0] = -np.inf
    np.testing.assert_array_equal(first_highest(jnp.asarray(scores)), scores.argmax(-1))


def test_visits_follow_sequential_halving():
    """Eight actions twice each, then four of them four times, then two until the end."""
    tried = considered_visits(8, 48)
    assert tried[:16] == [0] * 8 + [1] * 8
    assert tried[16:32] == [2] * 4 + [3] * 4 + [4] * 4 + [5] * 4
    assert tried[32:] == [visits for visits in range(6, 14) for _ in range(2)]
    assert considered_visits(1, 4) == [0, 1, 2, 3]


def test_value_is_the_return_of_the_action_that_the_search_takes():
    """One action, reward 1 and discount 0.5 each step, all positions judged 8: the returns are known."""
    judged = partial(Judged, jnp.zeros((2, 1)), jnp.full(2, 8.0))

    def step(key, action, position):
        return Simulated(jnp.ones(2), jnp.full(2, 0.5), judged(position + 1))

    root = judged(jnp.zeros(2, jnp.int32))
    found = search(jax.random.key(0), root, jnp.ones((2, 1), bool), step, scale, num_simulations=2, max_considered=16)
    np.testing.assert_allclose(found.value, 1.0 + 0.5 * (8.0 + (1.0 + 0.5 * 8.0)) / 2)
    assert found.visits.tolist() == [[2], [2]] and found.probs.tolist() == [[1.0], [1.0]]
