"""Mean and variance over the elements of weight 1; the others have weight 0."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Float, Shaped

from hmx.types import Array


def mean(values: Float[Array, "*shape"], weight: Shaped[Array, "*shape"] | None = None) -> Float[Array, ""]:
    """Return the mean over all elements, or over those of weight 1; 0 without any."""
    if weight is None:
        return values.mean()
    # selected, not multiplied: elements of weight 0 may be NaN
    return jnp.where(weight > 0, values, 0.0).sum() / jnp.maximum((weight > 0).sum(), 1)


def variance(values: Float[Array, "*shape"], weight: Shaped[Array, "*shape"] | None = None) -> Float[Array, ""]:
    """Return the population variance over the same elements."""
    return mean(jnp.square(values - mean(values, weight)), weight)
