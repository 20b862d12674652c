"""How far a policy has moved, and how well a value function fits."""

from __future__ import annotations

import jax.numpy as jnp

from hmx.types import Array, Mean


def approx_kl(log_prob: Array, log_prob_old: Array) -> Array:
    """Estimate of KL(old || new) from samples of the old policy: `mean((r - 1) - log r)`.

    The k3 estimator of Schulman 2020 ("Approximating KL divergence"): unbiased, never negative, and 0 where
    the policies agree.
    """
    log_ratio = log_prob - log_prob_old
    return jnp.mean(jnp.expm1(log_ratio) - log_ratio)


def clip_frac(log_prob: Array, log_prob_old: Array, clip_eps: float) -> Array:
    """Share of samples whose importance ratio lies outside `[1 - eps, 1 + eps]`."""
    return jnp.mean(jnp.abs(jnp.expm1(log_prob - log_prob_old)) > clip_eps, dtype=jnp.float32)


def explained_variance(value: Array, target: Array) -> Mean:
    """`1 - Var[target - value] / Var[target]`: 1 is perfect, 0 no better than a constant.

    Without data where all targets are equal.
    """
    spread = jnp.var(target)
    known = spread > 0.0
    return Mean.of(1.0 - jnp.var(target - value) / jnp.where(known, spread, 1.0), where=known)
