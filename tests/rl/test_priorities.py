"""Priorities of sequences against reference numbers (float64), and the distribution of what is drawn."""

import itertools
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmx.rl.priorities import draw_sequences, importance_weights, inclusion_probs, sequence_magnitude, sequence_probs

CASES = json.loads((Path(__file__).parent / "priority_loss_cases.json").read_text())["prioritised"]
CLOSE = {"rtol": 1e-5, "atol": 1e-6}
FULL = [case for case in CASES if "advantages" in case]
SUMS = [case for case in CASES if "scale" in case]
BROKEN = [case for case in CASES if "magnitude" in case]


def test_every_case_is_used():
    assert len(FULL) + len(SUMS) + len(BROKEN) == len(CASES)


@pytest.mark.parametrize("case", FULL, ids=lambda case: case["id"])
def test_probabilities_and_weights_match_their_definitions(case):
    expected = case["expected"]
    magnitude = sequence_magnitude(jnp.asarray(case["advantages"]))
    np.testing.assert_allclose(magnitude, expected["magnitude"], rtol=1e-5)
    probs, num_nonfinite = sequence_probs(magnitude, case["prio_alpha"])
    np.testing.assert_allclose(probs, expected["probs"], rtol=1e-5)
    assert num_nonfinite == 0
    beta, rows = expected["anneal_beta_literal"], len(case["advantages"])
    np.testing.assert_allclose(importance_weights(probs, rows, beta, "raw"), expected["is_weights"], rtol=1e-5)
    np.testing.assert_allclose(
        importance_weights(probs, rows, beta, "max"), expected["is_weights_max_normalised"], rtol=1e-5
    )
    clipped = np.minimum(expected["is_weights"], 3.0)
    np.testing.assert_allclose(importance_weights(probs, rows, beta, "clip", 3.0), clipped, rtol=1e-5)


@pytest.mark.parametrize("case", SUMS, ids=lambda case: case["id"])
def test_eight_thousand_rows_have_exact_probabilities(case):
    magnitude = jnp.float32(case["scale"]) * (1 + jnp.arange(8192) % 7).astype(jnp.float32)
    probs, _ = sequence_probs(magnitude, case["prio_alpha"])
    np.testing.assert_allclose(probs[0], case["expected"]["prob_row0"], rtol=1e-5)
    np.testing.assert_allclose(np.asarray(probs, np.float64).sum(), 1.0, rtol=1e-6)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e-8, 1e38])
def test_probabilities_sum_to_1_at_any_scale(scale, alpha):
    magnitude = jnp.full(8192, scale).at[0].set(3.0 * scale)
    probs, _ = sequence_probs(magnitude, alpha)
    np.testing.assert_allclose(np.asarray(probs, np.float64).sum(), 1.0, rtol=1e-5)
    for kind in ("max", "clip"):
        weights = importance_weights(probs, 8192, 1.0, kind)
        assert np.isfinite(weights).all() and (weights > 0.0).all()


@pytest.mark.parametrize("case", BROKEN, ids=lambda case: case["id"])
def test_non_finite_reference_rows_match(case):
    magnitude = jnp.asarray([float(x) for x in case["magnitude"]], jnp.float32)
    probs, num_nonfinite = sequence_probs(magnitude, case["prio_alpha"])
    np.testing.assert_allclose(probs, case["expected"]["probs"], rtol=1e-5)
    assert num_nonfinite == (~np.isfinite(magnitude)).sum()


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_non_finite_rows_have_weight_0_and_are_counted(alpha):
    """Also at alpha 0, where anything to the power of 0, NaN included, would be 1."""
    advantage = jnp.ones((4, 3)).at[1, 2].set(jnp.nan).at[3, 0].set(-jnp.inf)
    probs, num_nonfinite = sequence_probs(sequence_magnitude(advantage), alpha)
    assert num_nonfinite == 2
    np.testing.assert_allclose(probs[jnp.array([0, 2])], 0.5, rtol=1e-5)
    assert (probs[jnp.array([1, 3])] < 1e-6).all()


def test_all_rows_are_equal_if_all_are_non_finite():
    probs, num_nonfinite = sequence_probs(jnp.full(4, jnp.nan), 1.0)
    assert num_nonfinite == 4
    np.testing.assert_allclose(probs, 0.25)


def test_masked_steps_are_ignored():
    advantage = jnp.array([[1.0, -2.0, jnp.nan], [0.5, jnp.inf, 4.0]])
    mask = jnp.array([[1, 1, 0], [1, 0, 1]])
    np.testing.assert_array_equal(sequence_magnitude(advantage, mask), [3.0, 4.5])
    np.testing.assert_array_equal(sequence_magnitude(advantage, mask > 0), [3.0, 4.5])


@given(st.integers(0, 2**31), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_rows_with_larger_advantage_are_likelier_and_weigh_less(seed, alpha, beta):
    magnitude = np.sort(np.random.default_rng(seed).exponential(size=6)).astype(np.float32)
    probs, _ = sequence_probs(jnp.asarray(magnitude), np.float32(alpha))
    weights = importance_weights(probs, 6, np.float32(beta))
    assert (np.diff(probs) >= 0.0).all()
    assert (np.diff(weights) <= 0.0).all()
    assert weights[0] == pytest.approx(1.0, abs=1e-6)


def test_beta_1_removes_the_sampling_bias():
    probs, _ = sequence_probs(jnp.array([4.0, 1.0, 3.0, 2.0]), 1.0)
    weights = importance_weights(probs, 4, 1.0, "raw")
    np.testing.assert_allclose(probs * weights, 0.25, rtol=1e-6)


@pytest.mark.parametrize("kind", ["max", "mean", "clip", "raw"])
def test_impossible_row_has_a_finite_weight(kind):
    assert np.isfinite(importance_weights(jnp.array([0.0, 0.5]), 4, 1.0, kind)).all()


DRAWS = 40_000


def draw_many(probs, num_drawn, seed=0):
    keys = jax.random.split(jax.random.key(seed), DRAWS)
    return np.asarray(jax.jit(jax.vmap(lambda key: draw_sequences(key, jnp.asarray(probs), num_drawn)))(keys))


def chance(order, probs):
    """The probability of drawing exactly these rows in this order, one after the other from what is left."""
    left, result = sum(probs), 1.0
    for row in order:
        result *= probs[row] / left
        left -= probs[row]
    return result


@pytest.mark.parametrize(
    ("probs", "num_drawn", "limit"),
    [
        # limits: 0.1 % points of 11, 23 and 5 degrees of freedom
        ([0.1, 0.2, 0.3, 0.4], 2, 31.3),
        ([0.05, 0.05, 0.1, 0.8], 4, 49.7),
        ([1 / 3] * 3, 3, 20.5),
    ],
    ids=["two of four", "order of four", "shuffle"],
)
def test_samples_follow_the_exact_distribution(probs, num_drawn, limit):
    drawn = draw_many(probs, num_drawn)
    orders = list(itertools.permutations(range(len(probs)), num_drawn))
    seen = {order: 0 for order in orders}
    for order in map(tuple, drawn.tolist()):
        seen[order] += 1  # any other would be a row drawn twice
    expected = np.array([DRAWS * chance(order, probs) for order in orders])
    chi_square = ((np.array([seen[order] for order in orders]) - expected) ** 2 / expected).sum()
    assert chi_square < limit


def test_impossible_rows_come_last():
    drawn = draw_many([0.0, 1e-30, 0.0, 1.0], 4)
    assert (drawn[:, :2] == [3, 1]).all()
    assert set(map(frozenset, drawn[:, 2:].tolist())) == {frozenset({0, 2})}


def test_eight_thousand_rows_are_sampled_once_and_in_proportion():
    rows, drawn_rows, repeats = 8192, 256, 400
    magnitude = (1 + jnp.arange(rows) % 2 * 9).astype(jnp.float32)  # 1, 10, 1, 10, ...
    probs, _ = sequence_probs(magnitude, 1.0)
    draw = jax.jit(jax.vmap(lambda key: draw_sequences(key, probs, drawn_rows)))
    drawn = np.asarray(draw(jax.random.split(jax.random.key(1), repeats)))
    assert all(len(set(row)) == drawn_rows for row in drawn.tolist())
    # a row stays undrawn with exp(-t p), where t is the time at which 256 of all are drawn; solved by bisection
    low, high = 0.0, 1.0
    for _ in range(60):
        t = (low + high) / 2
        drawn_by_t = rows / 2 * (2 - np.exp(-t) - np.exp(-10 * t))
        low, high = (t, high) if drawn_by_t < drawn_rows else (low, t)
    share = (1 - np.exp(-10 * t)) / (2 - np.exp(-t) - np.exp(-10 * t))
    deviation = np.sqrt(share * (1 - share) / (drawn_rows * repeats))
    assert abs((drawn % 2).mean() - share) < 4 * deviation


@pytest.mark.parametrize("num_drawn", [1, 2, 4])
def test_inclusion_probabilities_make_weighted_means_unbiased(num_drawn):
    """With the probabilities of single draws instead, the largest sequence counts too little."""
    magnitude = jnp.array([16.0, 4.0, 2.0, 1.0, 1.0, 1.0, 0.5, 0.5])
    probs, _ = sequence_probs(magnitude, 1.0)

    @jax.jit
    @jax.vmap
    def estimates(key):
        drawn = draw_sequences(key, probs, num_drawn)
        inclusion = inclusion_probs(jax.random.clone(key), probs, num_drawn) / num_drawn
        return jnp.stack(
            [8 * (importance_weights(p[drawn], 8, 1.0, "raw") * (drawn == 0)).mean() for p in (inclusion, probs)]
        )

    found = np.asarray(estimates(jax.random.split(jax.random.key(0), DRAWS)))
    error = found.std(0) / np.sqrt(DRAWS)
    bias = found.mean(0) - 1.0
    assert abs(bias[0]) < 4 * error[0]
    assert num_drawn == 1 or bias[1] < -20 * error[1]


def test_all_sequences_are_included_when_all_are_drawn():
    np.testing.assert_array_equal(inclusion_probs(jax.random.key(0), jnp.array([0.5, 0.3, 0.2]), 3), 1.0)


@pytest.mark.parametrize("num_drawn", [8, 64])
def test_weights_of_mean_1_do_not_depend_on_the_size_of_the_minibatch(num_drawn):
    """Weights divided by the largest do: they shrink a step the more sequences a minibatch has."""
    magnitude = jnp.asarray(np.random.default_rng(0).exponential(size=256), jnp.float32)
    probs, _ = sequence_probs(magnitude, 1.0)
    drawn = draw_sequences(jax.random.key(0), probs, num_drawn)
    assert float(importance_weights(probs[drawn], 256, 1.0, "mean").mean()) == pytest.approx(1.0, rel=1e-5)
    assert float(importance_weights(probs[drawn], 256, 1.0, "max").mean()) < 0.5
