"""The masked categorical distribution."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hmx.rl import distributions

LOGITS = jnp.log(jnp.array([[1.0, 2.0, 5.0, 4.0]]))
LEGAL = jnp.array([[True, True, False, True]])


def test_probabilities_match_a_hand_calculation():
    np.testing.assert_allclose(distributions.probs(LOGITS, LEGAL), [[1 / 7, 2 / 7, 0.0, 4 / 7]], rtol=1e-6)
    np.testing.assert_allclose(distributions.log_prob(LOGITS, LEGAL, jnp.array([3])), np.log([4 / 7]), rtol=1e-6)
    p = np.array([1, 2, 4]) / 7
    np.testing.assert_allclose(distributions.entropy(LOGITS, LEGAL), [-(p * np.log(p)).sum()], rtol=1e-6)
    assert distributions.mode(LOGITS, LEGAL) == 3
    assert distributions.mode(LOGITS, jnp.array([[True, True, True, False]])) == 2


def test_illegal_actions_have_probability_0_and_no_gradient():
    assert distributions.probs(LOGITS, LEGAL)[0, 2] == 0.0
    gradient = jax.grad(
        lambda x: distributions.entropy(x, LEGAL).sum() + distributions.log_prob(x, LEGAL, jnp.array([0])).sum()
    )
    assert gradient(LOGITS)[0, 2] == 0.0
    assert np.isfinite(gradient(LOGITS.at[0, 2].set(1e20))).all()


@pytest.mark.parametrize("scale", [0.0, 1.0, 1e4])
def test_a_single_legal_action_is_certain(scale):
    logits = scale * jnp.array([[3.0, -1.0, 2.0]])
    legal = jnp.array([[False, True, False]])
    assert distributions.entropy(logits, legal) == 0.0
    assert distributions.log_prob(logits, legal, jnp.array([1])) == 0.0
    gradient = jax.grad(lambda x: distributions.entropy(x, legal).sum())(logits)
    np.testing.assert_array_equal(gradient, 0.0)


def test_uniform_entropy_is_the_logarithm_of_the_number_of_legal_actions():
    legal = jnp.arange(28)[None] < jnp.arange(1, 29)[:, None]
    np.testing.assert_allclose(
        distributions.entropy(jnp.zeros((28, 28)), legal), np.log(np.arange(1, 29)), rtol=1e-5, atol=1e-6
    )


_sample = jax.jit(distributions.sample)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**31))
def test_illegal_actions_are_never_sampled(seed):
    draw = np.random.default_rng(seed)
    legal = draw.random((64, 28)) < 0.2
    legal[:, draw.integers(28)] = True
    logits = jnp.asarray(np.where(legal, -50.0, 50.0) + draw.normal(size=legal.shape), jnp.float32)
    action = np.asarray(_sample(jax.random.key(seed), logits, jnp.asarray(legal)))
    assert legal[np.arange(64), action].all()


def test_samples_follow_the_probabilities():
    rows = 70_000
    action = _sample(jax.random.key(0), jnp.tile(LOGITS, (rows, 1)), jnp.tile(LEGAL, (rows, 1)))
    observed = np.bincount(action, minlength=4)
    expected = rows * np.asarray(distributions.probs(LOGITS, LEGAL))[0]
    assert observed[2] == 0
    chi_square = ((observed - expected)[[0, 1, 3]] ** 2 / expected[[0, 1, 3]]).sum()
    assert chi_square < 13.8  # 0.1 % point of two degrees of freedom
