"""Returns over several steps, against a loop that says what they mean."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hmx.replay import n_step

STEPS, ROWS = 4, 16
compiled = jax.jit(n_step)


def by_hand(reward, terminated, truncated, there, gamma):
    ret, discount = 0.0, 1.0
    for k in range(len(reward)):
        if not there[k]:
            return ret, discount, k - 1
        ret += discount * reward[k]
        discount *= gamma
        if terminated[k]:
            return ret, 0.0, k
        if truncated[k]:
            return ret, discount, k
    return ret, discount, len(reward) - 1


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.5, 0.99, 1.0]))
def test_n_step_targets_match_a_plain_loop(seed, gamma):
    rng = np.random.default_rng(seed)
    reward = rng.normal(size=(STEPS, ROWS)).astype(np.float32)
    end = rng.integers(0, 5, (STEPS, ROWS))
    there = rng.random((STEPS, ROWS)) < 0.8
    there[0] = True
    got = compiled(reward, end == 1, end == 2, there, gamma)
    for row in range(ROWS):
        expected = by_hand(reward[:, row], end[:, row] == 1, end[:, row] == 2, there[:, row], gamma)
        np.testing.assert_allclose([x[row] for x in got], expected, rtol=1e-5, atol=1e-6)


def test_one_step_target_is_the_standard_target():
    end = jnp.array([[0, 1, 2]])
    ret, discount, last = n_step(jnp.array([[1.0, 2.0, 3.0]]), end == 1, end == 2, jnp.ones((1, 3), bool), 0.9)
    np.testing.assert_array_equal(ret, [1.0, 2.0, 3.0])
    np.testing.assert_allclose(discount, [0.9, 0.0, 0.9])
    np.testing.assert_array_equal(last, 0)


def test_agents_can_end_at_different_steps():
    reward = jnp.ones((3, 1, 2))
    terminated = jnp.array([[[True, False]], [[False, False]], [[False, False]]])
    ret, discount, last = n_step(reward, terminated, jnp.zeros_like(terminated), jnp.ones_like(terminated), 0.5)
    np.testing.assert_allclose(ret, [[1.0, 1.75]])
    np.testing.assert_allclose(discount, [[0.0, 0.125]])
    np.testing.assert_array_equal(last, [[0, 2]])
