"""Representations of values by the value head: only the network output is transformed, rewards keep their unit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float

from hmx.rl import weighted
from hmx.rl.losses import clipped_squared_error, squared_error
from hmx.types import Array, Scalar

Stats = Any
Head = dict[str, Array]

_BINS = 127
_BIN_LIMIT = 9.0  # symexp(9) = 8102: above the reward of a won game
_STATS_RATE = 0.05
_MIN_SCALE = 1e-3


class ValueCodec(NamedTuple):
    """A representation of values.

    `raw [..., width]` is the network output; values `[...]` are in reward units. `loss` is per sample and takes
    `value_old` and `clip_eps` (value units; 0 never clips). `update_stats` sees the value targets of a rollout and
    their weights, 1 or 0.
    `rescale` adjusts the last layer `{"kernel" [H, width], "bias" [width]}` so that new statistics do not change any
    value. `head_gain` is the gain of that layer's initialisation.
    """

    width: int
    head_gain: float
    init_stats: Callable[[], Stats]
    update_stats: Callable[[Stats, Array, Array], Stats]
    decode: Callable[[Array, Stats], Array]
    loss: Callable[[Array, Array, Array, Scalar, Stats], Array]
    rescale: Callable[[Head, Stats, Stats], Head]


class ReturnStats(NamedTuple):
    """Exponential moving moments of the value targets, scalars; `weight` undoes the bias towards the start."""

    first: Array
    second: Array
    weight: Array

    def mean_and_scale(self) -> tuple[Array, Array]:
        """Return mean and standard deviation in reward units; 0 and 1 before any data."""
        seen = self.weight > 0.0
        weight = jnp.where(seen, self.weight, 1.0)
        mean = self.first / weight
        variance = jnp.maximum(self.second / weight - jnp.square(mean), 0.0)
        return mean, jnp.where(seen, jnp.maximum(jnp.sqrt(variance), _MIN_SCALE), 1.0)


def symlog(x: Float[Array, "*b"]) -> Float[Array, "*b"]:
    """Return `sign(x) log(1 + |x|)` (Hafner et al. 2023, arXiv:2301.04104, eq. 9)."""
    return jnp.sign(x) * jnp.log1p(jnp.abs(x))


def symexp(x: Float[Array, "*b"]) -> Float[Array, "*b"]:
    """Return the inverse of `symlog`: `sign(x) (exp(|x|) - 1)`."""
    return jnp.sign(x) * jnp.expm1(jnp.abs(x))


def make_codec(name: Literal["identity", "symlog", "return_norm", "two_hot"]) -> ValueCodec:
    """Return the codec called `identity`, `symlog`, `return_norm` or `two_hot`.

    Raises:
        KeyError: any other name.
    """
    return {"identity": _identity, "symlog": _symlog, "return_norm": _return_norm, "two_hot": _two_hot}[name]()


def _scalar_codec(
    encode: Callable[[Array, Stats], Array],
    decode: Callable[[Array, Stats], Array],
    init_stats: Callable[[], Stats] = lambda: None,
    update_stats: Callable[[Stats, Array, Array], Stats] = lambda stats, target, weight: stats,
    rescale: Callable[[Head, Stats, Stats], Head] = lambda head, old, new: head,
) -> ValueCodec:
    """Regression of one number: squared error (with the half) in the encoded space."""

    def decode_raw(raw: Array, stats: Stats) -> Array:
        return decode(raw[..., 0], stats)

    def loss(raw: Array, target: Array, value_old: Array, clip_eps: Scalar, stats: Stats) -> Array:
        code, code_target = raw[..., 0], encode(target, stats)
        plain = squared_error(code, code_target)
        if isinstance(clip_eps, float | int) and not clip_eps:
            return plain
        near = jnp.clip(decode(code, stats), value_old - clip_eps, value_old + clip_eps)
        clipped = clipped_squared_error(code, code_target, encode(near, stats))
        # a schedule may reach 0 during a run, and the compiler does not know its value
        return jnp.where(jnp.asarray(clip_eps) > 0.0, clipped, plain)

    return ValueCodec(1, 1.0, init_stats, update_stats, decode_raw, loss, rescale)


def _identity() -> ValueCodec:
    return _scalar_codec(lambda value, stats: value, lambda code, stats: code)


def _symlog() -> ValueCodec:
    # clipped, so that a finite output never becomes an infinite value
    return _scalar_codec(lambda value, stats: symlog(value), lambda code, stats: symexp(jnp.clip(code, -20.0, 20.0)))


def _return_norm() -> ValueCodec:
    """Normalise targets to mean 0 and scale 1; PopArt (van Hasselt et al. 2016, arXiv:1602.07714, section 2.1)."""

    def encode(value: Array, stats: ReturnStats) -> Array:
        mean, scale = stats.mean_and_scale()
        return (value - mean) / scale

    def decode(code: Array, stats: ReturnStats) -> Array:
        mean, scale = stats.mean_and_scale()
        return code * scale + mean

    return _scalar_codec(encode, decode, _init_moments, _update_moments, _keep_outputs)


def _init_moments() -> ReturnStats:
    return ReturnStats(jnp.float32(0.0), jnp.float32(0.0), jnp.float32(0.0))


def _update_moments(stats: ReturnStats, target: Array, weight: Array) -> ReturnStats:
    first, second = weighted.mean(target, weight), weighted.mean(jnp.square(target), weight)
    fresh = ReturnStats(first, second, jnp.float32(1.0))
    return ReturnStats(*(old + _STATS_RATE * (new - old) for old, new in zip(stats, fresh, strict=True)))


def _keep_outputs(head: Head, old: ReturnStats, new: ReturnStats) -> Head:
    """PopArt, eq. 3 and 4: `w' = w s / s'`, `b' = (s b + m - m') / s'`."""
    (old_mean, old_scale), (new_mean, new_scale) = old.mean_and_scale(), new.mean_and_scale()
    bias = (old_scale * head["bias"] + old_mean - new_mean) / new_scale
    return {"kernel": head["kernel"] * (old_scale / new_scale), "bias": bias}


def _two_hot() -> ValueCodec:
    """Predict a distribution over bins spaced evenly in symlog; the value is its mean in reward units.

    Hafner et al. 2023 (arXiv:2301.04104), eq. 10 and 11: bins `symexp(linspace)`, cross-entropy against the
    two-hot target. The head starts at 0, because the outermost bins would otherwise produce huge first values.
    """
    half = symexp(jnp.linspace(0.0, _BIN_LIMIT, _BINS // 2 + 1))
    bins = jnp.concatenate([-half[:0:-1], half])

    def decode(raw: Array, stats: Stats) -> Array:
        weight = jax.nn.softmax(raw)
        # mirrored bins are subtracted first, so that their large and opposite products cancel exactly
        surplus = weight[..., _BINS // 2 :] - weight[..., : _BINS // 2 + 1][..., ::-1]
        return (surplus * half.reshape((1,) * (raw.ndim - 1) + (-1,))).sum(-1)

    def loss(raw: Array, target: Array, value_old: Array, clip_eps: Scalar, stats: Stats) -> Array:
        return -(two_hot(target, bins) * jax.nn.log_softmax(raw)).sum(-1)

    return ValueCodec(
        _BINS, 0.0, lambda: None, lambda stats, target, weight: stats, decode, loss, lambda head, old, new: head
    )


def two_hot(value: Float[Array, "*b"], bins: Float[Array, " B"]) -> Float[Array, "*b B"]:
    """Return weights on the two bins next to each value whose mean is the value; values outside are clipped."""
    below, bins, above = (
        x.reshape((1,) * value.ndim + (-1,))
        for x in (jnp.append(bins[0] - 1.0, bins[:-1]), bins, jnp.append(bins[1:], bins[-1] + 1.0))
    )
    value = jnp.clip(value, bins.min(), bins.max())[..., None]
    rising = (value - below) / (bins - below)
    falling = (above - value) / (above - bins)
    return jnp.clip(jnp.minimum(rising, falling), 0.0, 1.0)
