"""Distances between policies, and the fit of a value function."""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Shaped

from hmx.rl import distributions, weighted
from hmx.types import Array, Mean, Scalar


def approx_kl(
    log_prob: Float[Array, "*b"], log_prob_old: Float[Array, "*b"], weight: Shaped[Array, "*b"] | None = None
) -> Float[Array, ""]:
    """Estimate KL(old || new) from samples of the old policy: `mean((r - 1) - log r)`.

    The k3 estimator of Schulman 2020 ("Approximating KL divergence"): unbiased, never negative, and 0 where
    the policies agree.
    """
    log_ratio = log_prob - log_prob_old
    return weighted.mean(jnp.expm1(log_ratio) - log_ratio, weight)


def clip_frac(
    log_prob: Float[Array, "*b"],
    log_prob_old: Float[Array, "*b"],
    clip_eps: Scalar,
    weight: Shaped[Array, "*b"] | None = None,
) -> Float[Array, ""]:
    """Return the share of samples whose importance ratio lies outside `[1 - eps, 1 + eps]`."""
    outside = jnp.abs(jnp.expm1(log_prob - log_prob_old)) > clip_eps
    return weighted.mean(outside.astype(jnp.float32), weight)


def explained_variance(
    value: Float[Array, "*b"], target: Float[Array, "*b"], weight: Shaped[Array, "*b"] | None = None
) -> Mean:
    """Return `1 - Var[target - value] / Var[target]`: 1 is perfect, 0 is no better than a constant.

    Has no data if all targets are equal.
    """
    spread = weighted.variance(target, weight)
    known = spread > 0.0
    return Mean.of(1.0 - weighted.variance(target - value, weight) / jnp.where(known, spread, 1.0), where=known)


def categorical_kl(
    logits: Float[Array, "*b n"], reference_logits: Float[Array, "*b n"], legal: Bool[Array, "*b n"]
) -> Float[Array, "*b"]:
    """Compute KL(policy || reference) of two categorical distributions over the same legal actions, `[...]`.

    The sum over the actions has no sampling noise. Its gradient with respect to `logits` is exactly 0 where both
    agree: since `sum p grad log p = 0`, it is that of `sum stop(p (log p - log q)) log p`, in which no terms need to
    cancel. `reference_logits` are a constant.
    """
    log_p, log_q = distributions.log_probs(logits, legal), distributions.log_probs(reference_logits, legal)
    each = jax.lax.stop_gradient(jnp.where(legal, jnp.exp(log_p) * (log_p - log_q), 0.0))
    carrier = (each * jnp.where(legal, log_p, 0.0)).sum(-1)
    return each.sum(-1) + carrier - jax.lax.stop_gradient(carrier)


Estimate = Literal["k1", "k3"]


def kl_estimate(
    log_prob: Float[Array, "*b"], reference_log_prob: Float[Array, "*b"], kind: Estimate
) -> Float[Array, "*b"]:
    """Estimate KL(policy || reference) per sample of the policy (Schulman 2020), by `d = log_prob - reference`.

    `k1` is d, and `k3` exp(-d) - 1 + d. The expected gradient of k1 is 0 for every reference, since it is the mean
    score. That of k3 belongs to KL(reference || policy).
    """
    d = log_prob - jax.lax.stop_gradient(reference_log_prob)
    return d if kind == "k1" else jnp.expm1(-d) + d
