"""Fit exponents to an effective sample size, so that signals can be compared at equal sharpness."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from hmx.config.schema import ReplayConfig
from hmx.replay.priority import exponents
from hmx.replay.state import ReplayState, all_densities, all_leaves, with_scale

_HIGHEST = 8.0  # with this exponent hardly anything but the largest value counts
_ROUNDS = 20  # halve the interval to 8 / 2^20


def ess_share(densities: Float[Array, " N"], size: Int[Array, ""]) -> Float[Array, ""]:
    """Compute the effective sample size `(sum p)^2 / sum p^2` (Kish 1965) as a share of `size`, from `N p`."""
    return jnp.square(densities.sum()) / (jnp.maximum(size, 1) * jnp.maximum(jnp.square(densities).sum(), 1e-30))


def fitted(state: ReplayState, options: ReplayConfig) -> ReplayState:
    """Scale the exponents by one factor until the effective sample size is `options.target_ess`, by bisection.

    The larger of the two exponents ends between 0 and 8; at 8 if all weights are equal, as no exponent matters then.
    """
    base = jnp.array(exponents(options), jnp.float32)
    largest = max(exponents(options))
    if not largest:
        return state

    def with_factor(factor: Array) -> ReplayState:
        return with_scale(state._replace(alphas=base * factor), options)

    def halve(_: Array, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = (low + high) / 2
        tried = with_factor(middle)
        share = ess_share(all_densities(tried, options, all_leaves(tried, options)), state.size)
        too_flat = share > options.target_ess
        return jnp.where(too_flat, middle, low), jnp.where(too_flat, high, middle)

    bounds = jnp.float32(0.0), jnp.float32(_HIGHEST / largest)
    low, high = jax.lax.fori_loop(0, _ROUNDS, halve, bounds)
    return with_factor((low + high) / 2)
