"""Sampling weights of slots from TD errors and consequence scores."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from hmx.config.learning import ReplayConfig

EPS_C = 0.01
"""Added to a score as a share of the mean score, so that the unit of a metric does not matter."""

_LARGEST = 1e30  # the sum of millions is still finite


def exponents(options: ReplayConfig) -> tuple[float, float]:
    """Return the exponents of TD errors and scores; uniform replay is replay by TD error with exponent 0."""
    return 0.0 if options.mixing == "uniform" else options.alpha_td, options.alpha_c


def shaped(magnitude: Float[Array, "*B"], alpha: Float[Array, ""], eps: float) -> Float[Array, "*B"]:
    """Compute `(magnitude + eps)^alpha`; exactly 1 everywhere for alpha 0."""
    return jnp.minimum(jnp.power(magnitude + eps, alpha), _LARGEST)


def magnitude(values: Float[Array, " B"]) -> tuple[Float[Array, " B"], Int[Array, ""]]:
    """Return absolute values, with 0 in place of non-finite ones, and the number of these."""
    finite = jnp.isfinite(values)
    return jnp.where(finite, jnp.abs(values), 0.0), (~finite).sum(dtype=jnp.int32)


def leaves(
    options: ReplayConfig,
    td_weight: Float[Array, "*B"],
    score_weight: Float[Array, "*B"],
    scored: Bool[Array, "*B"],
) -> Float[Array, " trees *B"]:
    """Return the values of the trees for some slots: by TD error, and with additive mixing a second tree by score.

    The second tree has 0 for slots without a score; see `densities`.
    """
    if options.mixing == "additive":
        return jnp.stack([td_weight, jnp.where(scored, score_weight, 0.0)])
    return td_weight[None]


def densities(
    options: ReplayConfig,
    weights: Float[Array, " trees *B"],
    totals: Float[Array, " trees"],
    scored: Bool[Array, "*B"],
    size: Int[Array, ""],
    num_scored: Int[Array, ""],
) -> Float[Array, "*B"]:
    """Compute `N p`, the probability of slots relative to uniform replay; exactly 1 if alpha is 0.

    In additive mixing a slot without a score has `p_C = 1/N`, which is also the average of those with one. Scoring
    alone does not change probabilities. `totals` are the sums of the trees over all slots.
    """
    by_first: Array = weights[0] / (totals[0] / size)
    if options.mixing != "additive":
        return by_first
    mean_score = jnp.where(num_scored > 0, totals[1] / jnp.maximum(num_scored, 1), 1.0)
    by_score = jnp.where(scored, weights[1] / mean_score, 1.0)
    mu = jnp.float32(options.mu)
    mixed: Array = mu * by_score + (1.0 - mu) * by_first
    return mixed


def density_bound(
    options: ReplayConfig,
    alphas: Float[Array, " 2"],
    totals: Float[Array, " trees"],
    size: Int[Array, ""],
    num_scored: Int[Array, ""],
    neutral: Float[Array, ""],
) -> Float[Array, ""]:
    """Compute a lower bound of `N p` over all slots that could be in the buffer."""
    lowest_td = jnp.power(options.eps_td, alphas[0])
    lowest_c = jnp.minimum(jnp.power(EPS_C, alphas[1]), neutral)
    weights = leaves(options, lowest_td, lowest_c, jnp.ones((), bool))
    scored = num_scored > 0
    return densities(options, weights, totals, scored, size, num_scored)
