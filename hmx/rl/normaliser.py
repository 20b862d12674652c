"""Running mean and variance of observations, merged exactly, batch by batch."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Float, Shaped, UInt32

from hmx.types import Array

STD_MIN, STD_MAX = 1e-6, 1e6  # as in Brax's running statistics


class RunningStats(NamedTuple):
    """Moments of all observations, per element of an observation.

    `count` is a 64-bit number in two words, high and low, since a float32 stops counting at 16.7 million.
    """

    count: Array  # type: ignore[assignment]  # [2] uint32
    mean: Array  # [*obs_shape] float32; 0 before any data
    var: Array  # [*obs_shape] float32, over n; 1 before any data


def init_stats(shape: tuple[int, ...]) -> RunningStats:
    """Return the statistics before any data: mean 0, variance 1."""
    return RunningStats(jnp.zeros(2, jnp.uint32), jnp.zeros(shape, jnp.float32), jnp.ones(shape, jnp.float32))


def merge(stats: RunningStats, batch: Shaped[Array, ...], weight: Shaped[Array, ...]) -> RunningStats:
    """Return the statistics updated with a batch.

    Chan, Golub & LeVeque 1979 (STAN-CS-79-773), eq. 2.1, for a mean of squares instead of their sum: no number grows
    with the number of samples, and the order of batches matters only for rounding.

    Args:
        stats: before the batch.
        batch: observations `[..., *obs_shape]`.
        weight: which of them count, `[...]` bool or 1 and 0.
    """
    rows = batch.reshape(-1, *stats.mean.shape)
    counts = weight.reshape((-1,) + (1,) * stats.mean.ndim) > 0
    new = counts.sum(dtype=jnp.uint32)
    size = jnp.maximum(new, 1).astype(jnp.float32)
    mean = jnp.where(counts, rows, 0.0).sum(0) / size
    var = jnp.where(counts, jnp.square(rows - mean[None]), 0.0).sum(0) / size
    return combine(stats, RunningStats(jnp.stack([jnp.zeros_like(new), new]), mean, var))


def combine(stats: RunningStats, more: RunningStats) -> RunningStats:
    """Return the statistics of the observations of both; those of `stats` if the others have none.

    A mean in float32 does not change by less than 6e-8 of itself. So statistics of many observations should take
    whole rollouts at once, not the few observations of a step.
    """
    low = stats.count[1] + more.count[1]
    count = jnp.stack([stats.count[0] + more.count[0] + (low < more.count[1]), low])
    new = number(more.count)
    share = new / jnp.maximum(number(count), 1.0)
    shift = more.mean - stats.mean
    spread = (1.0 - share) * stats.var + share * more.var + share * (1.0 - share) * jnp.square(shift)
    merged = RunningStats(count, stats.mean + share * shift, spread)
    return RunningStats(*(jnp.where(new > 0, a, b) for a, b in zip(merged, stats, strict=True)))


def number(count: UInt32[Array, " 2"]) -> Float[Array, ""]:
    """Return the count as a float32."""
    words = count.astype(jnp.float32)
    return words[0] * 2.0**32 + words[1]


def std(stats: RunningStats, ddof: int = 0) -> Float[Array, ...]:
    """Return the standard deviation `[*obs_shape]`, at least 1e-6; 1 where fewer than two observations were seen.

    Args:
        stats: before the batch.
        ddof: 1 divides by n - 1.
    """
    seen = number(stats.count)
    var = stats.var * seen / jnp.maximum(seen - 1.0, 1.0) if ddof else stats.var
    return jnp.where(seen > 1.0, jnp.clip(jnp.sqrt(var), STD_MIN, STD_MAX), 1.0)


def normalise(
    stats: RunningStats, obs: Shaped[Array, "*shape"], ddof: int = 0, clip: float = 0.0
) -> Float[Array, "*shape"]:
    """Return observations `[..., *obs_shape]` less the mean, over the standard deviation; float32.

    Args:
        stats: constants for gradients.
        obs: raw observations.
        ddof: see `std`.
        clip: size that results are clipped to; 0 never clips.
    """
    lead = (1,) * (obs.ndim - stats.mean.ndim)
    mean, scale = (leaf.reshape(lead + leaf.shape) for leaf in (stats.mean, std(stats, ddof)))
    scaled = (obs.astype(jnp.float32) - mean) / scale
    return jnp.clip(scaled, -clip, clip) if clip else scaled
