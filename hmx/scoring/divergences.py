"""Distances between two sets of returns."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from hmx.config.schema import Metric

NUM_BINS = 16
"""Bins of `tv_bins` and `js_bins`, between the smallest and the largest return of a position."""

_TIE = 1e-6  # returns that differ by less, as a share of the largest, count as equal


def divergence(metric: Metric, taken: Float[Array, " N"], other: Float[Array, "K N"]) -> Float[Array, " K"]:
    """Compute the distance between the returns of the action taken and those of each other action; `js` in nats."""
    if metric == "w1":
        # The optimal transport of equally many samples on a line pairs them by rank (Villani 2003, section 2.2).
        return jnp.abs(jnp.sort(taken)[None] - jnp.sort(other, axis=-1)).mean(-1)
    if metric == "dmean":
        return jnp.abs(taken.mean() - other.mean(-1))
    is_tv = metric.startswith("tv")
    if metric.endswith("_bins"):
        low, high = jnp.minimum(taken.min(), other.min()), jnp.maximum(taken.max(), other.max())
        width = jnp.where(high > low, high - low, 1.0)
        place = jnp.arange(NUM_BINS)

        def histogram(x: Array) -> Array:
            at = jnp.minimum(jnp.floor((x - low) / width * NUM_BINS), NUM_BINS - 1)
            return (at[..., None] == place.reshape((1,) * x.ndim + (-1,))).mean(-2)

        return _of_masses(is_tv, histogram(taken)[None], histogram(other)).sum(-1)
    tolerance = _TIE * jnp.maximum(jnp.abs(taken).max(), jnp.abs(other).max())
    return jax.vmap(lambda x: _of_ties(is_tv, taken, x, tolerance))(other)


def noise_floor(metric: Metric, taken: Float[Array, " N"], other: Float[Array, "K N"]) -> Float[Array, " K"]:
    """Compute the distance that the randomness of N rollouts alone would show; 0 for a single rollout.

    Half of the rollouts swap their actions. The two mixtures then have the same distribution, whatever the actions
    lead to, and rollouts with common random numbers stay paired.
    """
    size = taken.shape[0]
    if size == 1:
        return jnp.zeros(other.shape[0])
    swap = jnp.arange(size) < size // 2
    first, second = jnp.where(swap, other, taken), jnp.where(swap, taken, other)
    return jax.vmap(lambda x, y: divergence(metric, x, y[None])[0])(first, second)


def _of_ties(is_tv: bool, x: Array, y: Array, tolerance: Array) -> Array:
    """Sum over the values that occur in x and y `[N]`; each sample stands for its share of its value."""
    pooled = jnp.concatenate([x, y])

    def count(sample: Array) -> Array:
        ordered = jnp.sort(sample)
        above = jnp.searchsorted(ordered, pooled + tolerance, side="right")
        return (above - jnp.searchsorted(ordered, pooled - tolerance, side="left")).astype(jnp.float32)

    in_x, in_y = count(x), count(y)
    size = x.shape[0]
    return (_of_masses(is_tv, in_x / size, in_y / size) / (in_x + in_y)).sum()


def _of_masses(is_tv: bool, p: Array, q: Array) -> Array:
    """Compute the contribution of each value with probabilities p and q."""
    if is_tv:
        return jnp.abs(p - q) / 2
    middle = jnp.where(p + q > 0.0, (p + q) / 2, 1.0)

    def part(mass: Array) -> Array:
        return jnp.where(mass > 0.0, mass * jnp.log(jnp.where(mass > 0.0, mass, 1.0) / middle), 0.0)

    return (part(p) + part(q)) / 2
