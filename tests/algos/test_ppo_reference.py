"""The penalty of KL(policy || reference): its value and its gradient for each kind of action."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hmx.algos.ppo.reference import reference_penalty
from hmx.algos.sequences import Batch
from hmx.rl import policies

STEPS, COEF = 6, 0.7
LEGAL = np.array(
    [[1, 1, 0, 1, 1], [1, 0, 0, 0, 1], [0, 1, 1, 1, 1], [1, 1, 1, 1, 1], [0, 0, 1, 0, 0], [1, 1, 0, 0, 1]], bool
)
WEIGHT = np.array([1.0, 1.0, 0.0, 1.0, 1.0, 1.0])  # one step is not trained on


def softmax(logits: Any, legal: Any, xp: Any) -> Any:
    shifted = xp.where(legal, xp.exp(logits), 0.0)
    return shifted / shifted.sum(-1, keepdims=True)


def categorical(output: Any, reference: Any, legal: Any, xp: Any) -> Any:
    """KL by its definition: sum of p log(p / q) over the legal actions."""
    p, q = softmax(output, legal, xp), softmax(reference, legal, xp)
    return xp.where(legal, p * (xp.log(xp.where(legal, p, 1.0)) - xp.log(xp.where(legal, q, 1.0))), 0.0).sum(-1)


def two_parts(output: Any, reference: Any, legal: Any, xp: Any) -> Any:
    """Independent parts of 2 and 3 choices: the joint distribution over their 6 pairs, action by action."""
    found = 0.0
    p, q = [[softmax(o[..., s], legal[..., s], xp) for s in (slice(0, 2), slice(2, 5))] for o in (output, reference)]
    for i in range(2):
        for j in range(3):
            joint, other = p[0][..., i] * p[1][..., j], q[0][..., i] * q[1][..., j]
            known = joint > 0
            ratio = xp.log(xp.where(known, joint, 1.0)) - xp.log(xp.where(known, other, 1.0))
            found = found + xp.where(known, joint * ratio, 0.0)
    return found


def tanh_normal(output: Any, reference: Any, legal: Any, xp: Any) -> Any:
    """KL of the squashed actions by quadrature over u, where a = tanh(u): both densities have the same Jacobian."""
    u = np.linspace(-14.0, 14.0, 4001)[None]
    found = 0.0
    for d in range(2):
        densities = []
        for out in (output, reference):
            mean, std = out[..., d, None], xp.log1p(xp.exp(out[..., 2 + d, None])) + 1e-3
            log_jacobian = np.log1p(-(np.tanh(u) ** 2) + 1e-300)
            densities.append(-0.5 * ((u - mean) / std) ** 2 - xp.log(std) - 0.5 * np.log(2 * np.pi) - log_jacobian)
        p = xp.exp(densities[0] + log_jacobian)  # the Jacobian of the integral
        found = found + (p * (densities[0] - densities[1])).sum(-1) * (u[0, 1] - u[0, 0])
    return found


MULTI = LEGAL.copy()
MULTI[:, 0] |= ~MULTI[:, :2].any(-1)
MULTI[:, 2] |= ~MULTI[:, 2:].any(-1)
KINDS = {
    "discrete": (policies.CATEGORICAL, LEGAL, categorical),
    "multi-discrete": (policies.multi_categorical((2, 3)), MULTI, two_parts),
    "continuous": (policies.tanh_gaussian(2), np.ones((STEPS, 0), bool), tanh_normal),
}


def batch_of(reference: Any, legal: Any) -> Batch:
    nothing: dict[str, Any] = dict.fromkeys(Batch._fields)
    dtype = jnp.result_type(float)
    rows = {"reference": jnp.asarray(reference, dtype)[None], "legal": jnp.asarray(legal)[None]}
    return Batch(**{**nothing, **rows, "weight": jnp.asarray(WEIGHT, dtype)[None]})


@pytest.mark.parametrize("kind", KINDS)
def test_gradient_is_that_of_the_formula(kind: str) -> None:
    """By central finite differences of plain NumPy, and by autodiff of the same formula, in float64."""
    head, legal, formula = KINDS[kind]
    width = 4 if kind == "continuous" else 5
    output, reference = np.random.default_rng(3).normal(size=(2, STEPS, width))
    share = WEIGHT / WEIGHT.sum()

    def plain(out: Any, xp: Any = np) -> Any:
        return COEF * (formula(out, reference, legal, xp) * share).sum()

    with jax.enable_x64(True):
        batch = batch_of(reference, legal)
        hypers = {"ref_kl_coef": jnp.asarray(COEF)}
        value, got = jax.value_and_grad(lambda out: reference_penalty(head, out[None], hypers, batch)[0])(
            jnp.asarray(output)
        )
        auto = jax.grad(lambda out: plain(out, jnp))(jnp.asarray(output))
        metric = reference_penalty(head, jnp.asarray(output)[None], hypers, batch)[1]["train/ref_kl"]
    differences = np.zeros_like(output)
    for at in np.ndindex(*output.shape):
        step = np.zeros_like(output)
        step[at] = 1e-5
        differences[at] = (plain(output + step) - plain(output - step)) / 2e-5
    np.testing.assert_allclose(value, plain(output), rtol=1e-6)
    np.testing.assert_allclose(float(metric.total / metric.count), plain(output) / COEF, rtol=1e-6)
    np.testing.assert_allclose(got, differences, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(got, auto, rtol=1e-5, atol=1e-9)
    assert (np.asarray(got)[2] == 0.0).all() and (np.asarray(got) != 0.0).any()


def test_divergence_is_measured_where_the_coefficient_is_0() -> None:
    """Without a coefficient nothing is added to the loss, and without a reference there is no metric either."""
    output, reference = np.random.default_rng(3).normal(size=(2, STEPS, 5)).astype(np.float32)
    batch = batch_of(reference, LEGAL)
    added, metrics = reference_penalty(policies.CATEGORICAL, jnp.asarray(output)[None], {}, batch)
    assert added == 0.0 and float(metrics["train/ref_kl"].total) > 0.0
    assert reference_penalty(policies.CATEGORICAL, jnp.asarray(output)[None], {}, batch._replace(reference=None)) == (
        0.0,
        {},
    )
