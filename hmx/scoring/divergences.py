"""How far apart two sets of returns are."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from hmx.types import Array

_TIE = 1e-6  # returns nearer than that, as a share of the largest, are the same


def divergence(metric: str, taken: Array, other: Array, num_bins: int = 16) -> Array:
    """The distance of the returns of the action taken from those of each other action, `[K]`.

    Args:
        metric: `w1`, `dmean`, `tv`, `js`, `tv_bins` or `js_bins`; see `hmx.scoring.Options`.
        taken: `[N]` returns.
        other: `[K, N]` returns.
        num_bins: of histograms, between the smallest and the largest return of all.
    """
    if metric == "w1":
        # the optimal transport of equally many samples on a line pairs them by rank (Villani 2003, section 2.2)
        return jnp.abs(jnp.sort(taken)[None] - jnp.sort(other, axis=-1)).mean(-1)
    if metric == "dmean":
        return jnp.abs(taken.mean() - other.mean(-1))
    kind, _, bins = metric.partition("_")
    if bins:
        low, high = jnp.minimum(taken.min(), other.min()), jnp.maximum(taken.max(), other.max())
        width = jnp.where(high > low, high - low, 1.0)
        place = jnp.arange(num_bins)

        def histogram(x: Array) -> Array:
            at = jnp.minimum(jnp.floor((x - low) / width * num_bins), num_bins - 1)
            return (at[..., None] == place.reshape((1,) * x.ndim + (-1,))).mean(-2)

        p, q = histogram(taken)[None], histogram(other)
        return _of_masses(kind, p, q).sum(-1)
    tolerance = _TIE * jnp.maximum(jnp.abs(taken).max(), jnp.abs(other).max())
    return jax.vmap(lambda x: _of_ties(kind, taken, x, tolerance))(other)


def _of_ties(kind: str, x: Array, y: Array, tolerance: Array) -> Array:
    """Over the values that occur among x and y `[N]`: each sample stands for its share of its value."""
    pooled = jnp.concatenate([x, y])

    def count(sample: Array) -> Array:
        ordered = jnp.sort(sample)
        above = jnp.searchsorted(ordered, pooled + tolerance, side="right")
        return (above - jnp.searchsorted(ordered, pooled - tolerance, side="left")).astype(jnp.float32)

    in_x, in_y = count(x), count(y)
    size = x.shape[0]
    return (_of_masses(kind, in_x / size, in_y / size) / (in_x + in_y)).sum()


def _of_masses(kind: str, p: Array, q: Array) -> Array:
    """The contribution of each value with probabilities p and q."""
    if kind == "tv":
        return jnp.abs(p - q) / 2
    middle = jnp.where(p + q > 0.0, (p + q) / 2, 1.0)

    def part(mass: Array) -> Array:
        return jnp.where(mass > 0.0, mass * jnp.log(jnp.where(mass > 0.0, mass, 1.0) / middle), 0.0)

    return (part(p) + part(q)) / 2
