"""Exponents that give a wanted effective sample size, so that signals can be compared at equal sharpness."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from hmx.replay.priority import Options
from hmx.replay.state import ReplayState, all_densities, all_leaves, with_scale
from hmx.types import Array

_HIGHEST = 8.0  # an exponent that makes next to nothing but the largest count
_ROUNDS = 20  # halve the interval to 8 / 2^20


def ess_share(densities: Array, size: Array) -> Array:
    """Effective sample size `(sum p)^2 / sum p^2` (Kish 1965) as a share of `size`, from `N p`."""
    return jnp.square(densities.sum()) / (jnp.maximum(size, 1) * jnp.maximum(jnp.square(densities).sum(), 1e-30))


def fitted(state: ReplayState, options: Options) -> ReplayState:
    """The exponents scaled by one common factor until the effective sample size is `options.target_ess`.

    By bisection; where all weights are equal no exponent changes anything, and the largest is taken. The larger of the
    two exponents ends between 0 and 8.
    """
    base = jnp.array([options.alpha_td, options.alpha_c], jnp.float32)
    largest = max(options.alpha_td, options.alpha_c)
    if not largest:
        return state

    def with_factor(factor: Array) -> ReplayState:
        return with_scale(state._replace(alphas=base * factor), options)

    def halve(_: int, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = (low + high) / 2
        tried = with_factor(middle)
        share = ess_share(all_densities(tried, options, all_leaves(tried, options)), state.size)
        too_flat = share > options.target_ess
        return jnp.where(too_flat, middle, low), jnp.where(too_flat, high, middle)

    bounds = jnp.float32(0.0), jnp.float32(_HIGHEST / largest)
    low, high = jax.lax.fori_loop(0, _ROUNDS, halve, bounds)
    return with_factor((low + high) / 2)
