"""Moments over the elements that count: weights are 1, or 0 for what is not there."""

from __future__ import annotations

import jax.numpy as jnp

from hmx.types import Array


def mean(values: Array, weight: Array | None = None) -> Array:
    """The mean over all elements, or over those of weight 1; 0 where there are none."""
    if weight is None:
        return values.mean()
    # chosen, not multiplied: what does not count may be NaN
    return jnp.where(weight > 0, values, 0.0).sum() / jnp.maximum((weight > 0).sum(), 1)


def variance(values: Array, weight: Array | None = None) -> Array:
    """The population variance, likewise."""
    return mean(jnp.square(values - mean(values, weight)), weight)
