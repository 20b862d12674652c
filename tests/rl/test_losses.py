"""Losses and divergences against cases worked by hand and reference numbers."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hmx.rl.advantages import normalise
from hmx.rl.divergences import approx_kl, clip_frac, explained_variance
from hmx.rl.losses import clipped_squared_error, clipped_surrogate, squared_error

CASES = json.loads((Path(__file__).parent / "reference_cases.json").read_text())


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "slope"),
    [
        (1.0, 2.0, -2.0, -2.0),
        (1.5, 2.0, -2.4, 0.0),  # good and already likelier: clipped at 1.2
        (0.5, 2.0, -1.0, -2.0),  # good but less likely: free to rise
        (0.5, -2.0, 1.6, 0.0),  # bad and already less likely: clipped at 0.8
        (1.5, -2.0, 3.0, 2.0),  # bad but likelier: free to fall
    ],
)
def test_surrogate_by_hand(ratio, advantage, loss, slope):
    log_prob = jnp.log(ratio)
    value, gradient = jax.value_and_grad(clipped_surrogate)(log_prob, 0.0, advantage, 0.2)
    np.testing.assert_allclose(value, loss, rtol=1e-6)
    np.testing.assert_allclose(gradient, slope * ratio, rtol=1e-6)  # d ratio / d log_prob = ratio


def test_value_loss_reference_numbers():
    case = CASES["value_loss"]
    value, target, old = (jnp.asarray(case[name]) for name in ("values", "targets", "old_values"))
    loss, gradient = jax.value_and_grad(lambda v: squared_error(v, target).mean())(value)
    np.testing.assert_allclose(loss, case["half_mean"], rtol=1e-6)
    np.testing.assert_allclose(gradient, case["grad"], rtol=1e-6)
    clipped = jnp.clip(value, old - case["clip"], old + case["clip"])
    loss = clipped_squared_error(value, target, clipped).mean()
    np.testing.assert_allclose(loss, case["half_mean_clipped"], rtol=1e-6)


def test_whole_loss_reference_numbers():
    case = CASES["whole"]
    log_ratio = -jnp.asarray(case["old_minus_new_log_prob_TB"])
    advantage = normalise(jnp.asarray(case["advantages_TB"]))
    policy = clipped_surrogate(log_ratio, jnp.zeros_like(log_ratio), advantage, case["clip"]).mean()
    np.testing.assert_allclose(policy, case["policy_loss"], rtol=1e-5)
    value = squared_error(jnp.asarray(case["values_TB"]), jnp.asarray(case["targets_TB"])).mean()
    np.testing.assert_allclose(value, case["value_loss"], rtol=1e-5)


def test_divergences_by_hand():
    log_prob_old = jnp.zeros(4)
    log_prob = jnp.log(jnp.array([1.0, 2.0, 0.5, 1.1]))
    expected = np.mean([0.0, 1 - np.log(2), -0.5 - np.log(0.5), 0.1 - np.log(1.1)])
    np.testing.assert_allclose(approx_kl(log_prob, log_prob_old), expected, rtol=1e-5)
    assert clip_frac(log_prob, log_prob_old, 0.2) == 0.5
    assert approx_kl(log_prob, log_prob) == 0.0


def test_explained_variance():
    target = jnp.array([1.0, 2.0, 3.0, 4.0])
    assert explained_variance(target, target).total == 1.0
    assert explained_variance(jnp.full(4, 7.0), target).total == 0.0
    np.testing.assert_allclose(explained_variance(-target, target).total, 1 - 4.0)
    constant = explained_variance(target, jnp.ones(4))
    assert (constant.total, constant.count) == (0.0, 0.0)  # no data, rather than a number
