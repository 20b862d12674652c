"""Losses and divergences against cases worked by hand and reference numbers."""

import json
from functools import partial
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
def test_surrogate_matches_a_hand_calculation(ratio, advantage, loss, slope):
    log_prob, advantage = jnp.log(ratio), jnp.float32(advantage)
    value, gradient = jax.value_and_grad(clipped_surrogate)(log_prob, jnp.float32(0.0), advantage, 0.2)
    np.testing.assert_allclose(value, loss, rtol=1e-6)
    np.testing.assert_allclose(gradient, slope * ratio, rtol=1e-6)  # d ratio / d log_prob = ratio


LOSSES = json.loads((Path(__file__).parent / "priority_loss_cases.json").read_text())["losses"]


def total_loss(log_prob, value, entropy, case, clip_eps):
    """As the Metta training equations add it up, but with the half in the value loss. `clip_eps` may be traced."""
    inputs = case["inputs"]
    old, target = jnp.asarray(inputs["old_values"]), jnp.asarray(inputs["returns"])
    policy = clipped_surrogate(log_prob, jnp.zeros_like(log_prob), jnp.asarray(inputs["advantages"]), clip_eps).mean()
    if inputs["clip_vloss"]:
        near = jnp.clip(value, old - inputs["vf_clip_coef"], old + inputs["vf_clip_coef"])
        value_loss = clipped_squared_error(value, target, near).mean()
    else:
        value_loss = squared_error(value, target).mean()
    total = policy + inputs["vf_coef"] * value_loss - inputs["ent_coef"] * entropy.mean()
    return total, (policy, value_loss)


@pytest.mark.parametrize("case", LOSSES, ids=lambda case: case["id"])
def test_reference_losses_and_gradients(case):
    inputs, expected = case["inputs"], case["expected"]
    ratio, clip_eps = np.asarray(inputs["ratio"], np.float32), np.float32(inputs["clip_coef"])
    log_prob, value, entropy = jnp.log(ratio), jnp.asarray(inputs["values"]), jnp.asarray(inputs["entropy"])
    loss = jax.jit(jax.value_and_grad(partial(total_loss, case=case), argnums=(0, 1), has_aux=True))
    (total, (policy, value_loss)), (grad_log_prob, grad_value) = loss(log_prob, value, entropy, clip_eps=clip_eps)
    close = partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6)
    close(policy, expected["policy_loss"])
    close(value_loss, expected["value_loss_with_half"])
    close(2 * value_loss, expected["value_loss_literal"])
    close(total, expected["total_with_half"])
    close(entropy.mean(), expected["entropy_mean"])
    close(approx_kl(log_prob, jnp.zeros_like(log_prob)), expected["approx_kl"])
    close(-log_prob.mean(), expected["old_approx_kl"])
    slopes(
        np.asarray(grad_log_prob) / ratio,
        expected["grad_ratio_with_half"],
        free=-np.asarray(inputs["advantages"]) / len(ratio),
        edge=np.isclose(np.abs(ratio - 1.0), clip_eps, rtol=1e-5),
    )
    error, moved = (np.subtract(inputs["values"], inputs[name]) for name in ("returns", "old_values"))
    slopes(
        np.asarray(grad_value),
        expected["grad_value_with_half"],
        free=inputs["vf_coef"] * error / len(ratio),
        edge=np.isclose(np.abs(moved), inputs["vf_clip_coef"], rtol=1e-5),
    )


def slopes(got, expected, free, edge):
    """On the edge of a clip range, any slope from the clipped to the free one is a gradient: rounding decides."""
    np.testing.assert_allclose(got[~edge], np.asarray(expected)[~edge], rtol=1e-5, atol=1e-6)
    assert ((got * free)[edge] >= 0.0).all()
    assert (np.abs(got)[edge] <= np.abs(free)[edge] + 1e-6).all()


@pytest.mark.parametrize("case", LOSSES, ids=lambda case: case["id"])
def test_reference_clip_fractions(case):
    ratio, clip_eps = np.asarray(case["inputs"]["ratio"], np.float32), case["inputs"]["clip_coef"]
    # the widened range keeps a ratio on the very edge inside, as exact numbers would
    frac = clip_frac(jnp.log(ratio), jnp.zeros_like(ratio), jnp.float32(clip_eps + 1e-6))
    np.testing.assert_allclose(frac, case["expected"]["clipfrac"], rtol=1e-5, atol=1e-6)


def test_whole_loss_reference_numbers():
    case = CASES["whole"]
    log_ratio = -jnp.asarray(case["old_minus_new_log_prob_TB"])
    advantage = normalise(jnp.asarray(case["advantages_TB"]))
    policy = clipped_surrogate(log_ratio, jnp.zeros_like(log_ratio), advantage, case["clip"]).mean()
    np.testing.assert_allclose(policy, case["policy_loss"], rtol=1e-5)
    value = squared_error(jnp.asarray(case["values_TB"]), jnp.asarray(case["targets_TB"])).mean()
    np.testing.assert_allclose(value, case["value_loss"], rtol=1e-5)


def test_divergences_match_a_hand_calculation():
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
