"""Advantages against cases worked by hand and against reference numbers (float64)."""

import json
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hmx.rl.advantages import gae, normalise

CASES = json.loads((Path(__file__).parent / "reference_cases.json").read_text())


def run_gae(case):
    """From the reference's `next_values` to what a rollout stores: the value after it, and of final observations."""
    arrays = {name: np.asarray(case[name], np.float32) for name in ("rewards", "values", "next_values")}
    terminated, truncated = (np.asarray(case[name], bool) for name in ("terminated", "truncated"))
    return gae(
        reward_tp1=jnp.asarray(arrays["rewards"]),
        value_t=jnp.asarray(arrays["values"]),
        value_last=jnp.asarray(arrays["next_values"][-1]),
        value_final_tp1=jnp.asarray(np.where(truncated, arrays["next_values"], 0.0), jnp.float32),
        terminated_tp1=jnp.asarray(terminated),
        truncated_tp1=jnp.asarray(truncated),
        gamma=case["gamma"],
        gae_lambda=case["gae_lambda"],
    )


@pytest.mark.parametrize("case", CASES["gae"], ids=lambda case: case["id"])
def test_results_match_reference_numbers(case):
    got = run_gae(case)
    np.testing.assert_allclose(got.advantage_t, case["advantages"], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(got.target_t, np.add(case["advantages"], case["values"]), rtol=1e-5, atol=1e-5)


def by_hand(terminated, truncated):
    """gamma = lambda = 1/2, so that every number below is exact in float32."""
    return gae(
        jnp.array([1.0, 2.0, 4.0]),
        jnp.array([0.5, 1.0, 2.0]),
        jnp.float32(8.0),
        jnp.array([0.0, 16.0, 0.0]),
        jnp.array(terminated),
        jnp.array(truncated),
        0.5,
        0.5,
    )


@pytest.mark.parametrize(
    ("terminated", "truncated", "advantage"),
    [
        # delta = 1 + .5*1 - .5 = 1,  2 + .5*2 - 1 = 2,  4 + .5*8 - 2 = 6; trace 1/4
        ([False] * 3, [False] * 3, [1 + 3.5 / 4, 2 + 6 / 4, 6.0]),
        # the second step terminates: delta = 2 - 1 = 1, nothing after it counts
        ([False, True, False], [False] * 3, [1 + 1 / 4, 1.0, 6.0]),
        # the second step is cut: delta = 2 + .5*16 - 1 = 9 from the final observation's value
        ([False] * 3, [False, True, False], [1 + 9 / 4, 9.0, 6.0]),
        # the last step terminates: the value after the rollout must not leak in
        ([False, False, True], [False] * 3, [1 + 2.5 / 4, 2 + 2 / 4, 2.0]),
    ],
)
def test_results_match_a_hand_calculation(terminated, truncated, advantage):
    got = by_hand(terminated, truncated)
    np.testing.assert_array_equal(got.advantage_t, np.float32(advantage))
    np.testing.assert_array_equal(got.target_t, np.float32(advantage) + np.float32([0.5, 1.0, 2.0]))


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 2**31))
def test_environments_are_independent(seed):
    draw = np.random.default_rng(seed)
    reward, value, final = (jnp.asarray(draw.normal(size=(7, 4, 2)), jnp.float32) for _ in range(3))
    ended = draw.integers(0, 3, (7, 4))
    args = (reward, value, value[0], final, jnp.asarray(ended == 1), jnp.asarray(ended == 2))
    estimate = jax.jit(partial(gae, gamma=0.9, gae_lambda=0.8))
    order = draw.permutation(4)
    permuted = estimate(*(x[order] if x.ndim == 2 and x.shape[0] == 4 else x[:, order] for x in args))
    np.testing.assert_array_equal(permuted.advantage_t, estimate(*args).advantage_t[:, order])


@pytest.mark.parametrize("case", CASES["normalise"], ids=lambda case: case["id"])
def test_normalise_reference_numbers(case):
    got = normalise(jnp.asarray(case["advantages"]), eps=case["eps"])
    np.testing.assert_allclose(got, case["expected"], rtol=1e-5, atol=1e-6)
