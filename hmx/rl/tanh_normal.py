"""The tanh-normal distribution of continuous actions: `a = tanh(u)`, `u ~ N(mean, std)`, dimensions independent.

All functions take the action before the squash, `u`, so that no inverse of tanh is ever needed. What a network says
is `output [..., 2D]`: D means, then D numbers that `split` makes deviations of.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from hmx.types import Array, Key

_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
_NODES, _REACH = 97, 8.0  # of the quadrature, in standard deviations


def split(output: Array, std: str, std_min: float) -> tuple[Array, Array]:
    """Means and deviations `[..., D]`.

    Args:
        output: what the network says, `[..., 2D]`.
        std: `softplus`: `softplus(raw) + std_min`, as in Brax; `exp` and `param`: `exp(raw) + std_min`, where for
            `param` the network's numbers do not depend on the observation.
        std_min: added to every deviation; 0 leaves `exp` without a floor.
    """
    mean, raw = jnp.split(output, 2, axis=-1)
    return mean, (jax.nn.softplus(raw) if std == "softplus" else jnp.exp(raw)) + std_min


def log_jacobian(raw_action: Array) -> Array:
    """`log(1 - tanh(u)^2)` per dimension: never above 0, and 0 at 0 only.

    Written as `2 (log 2 - u - softplus(-2u))`, which neither overflows nor cancels.
    """
    return 2.0 * (math.log(2.0) - raw_action - jax.nn.softplus(-2.0 * raw_action))


def normal_log_prob(mean: Array, std: Array, raw_action: Array) -> Array:
    """Log-density of `u` before the squash, summed over dimensions."""
    return (-0.5 * jnp.square((raw_action - mean) / std) - jnp.log(std) - _HALF_LOG_2PI).sum(-1)


def log_prob(mean: Array, std: Array, raw_action: Array) -> Array:
    """Log-density of `tanh(u)`. The last term cancels in every importance ratio."""
    return normal_log_prob(mean, std, raw_action) - log_jacobian(raw_action).sum(-1)


def gaussian_entropy(std: Array) -> Array:
    """Differential entropy before the squash, in nats, summed over dimensions; it grows with `std` without end."""
    return (jnp.log(std) + _HALF_LOG_2PI + 0.5).sum(-1)


def sampled_entropy(key: Key, mean: Array, std: Array) -> Array:
    """An unbiased estimate of the entropy of `tanh(u)` from one sample per state (Brax's `NormalTanhDistribution`)."""
    drawn = mean + std * jax.random.normal(key, mean.shape, mean.dtype)
    return gaussian_entropy(std) + log_jacobian(drawn).sum(-1)


def entropy(mean: Array, std: Array) -> Array:
    """The entropy of `tanh(u)` itself, at most `log 2` per dimension, by the trapezoidal rule.

    The rule converges exponentially for analytic functions (Trefethen & Weideman 2014, SIAM Review 56); with 97 nodes
    over 8 deviations either way the error is under 1e-4 up to deviations of 5.
    """
    z = jnp.linspace(-_REACH, _REACH, _NODES, dtype=mean.dtype)
    weight = jnp.exp(-0.5 * jnp.square(z))
    weight = (weight / weight.sum()).reshape((1,) * mean.ndim + (-1,))
    nodes = mean[..., None] + std[..., None] * z.reshape(weight.shape)
    return gaussian_entropy(std) + (log_jacobian(nodes) * weight).sum((-1, -2))


def kl(mean: Array, std: Array, other_mean: Array, other_std: Array) -> Array:
    """KL(this || other), summed over dimensions; the squash is one to one, so it is that of the Gaussians."""
    spread = jnp.square(std / other_std) + jnp.square((mean - other_mean) / other_std)
    return (0.5 * (spread - 1.0) - jnp.log(std / other_std)).sum(-1)
