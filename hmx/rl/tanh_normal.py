"""The tanh-normal distribution of continuous actions: `a = tanh(u)`, `u ~ N(mean, std)`, dimensions independent.

All functions take the action before squashing, `u`, so that no inverse of tanh is needed. The network output
`output [..., 2D]` is D means, then D numbers from which `split` computes standard deviations.
"""

from __future__ import annotations

import math
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Float

from hmx.types import Array, Key

Std = Literal["softplus", "exp", "param"]
_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
_NODES, _REACH = 97, 8.0  # of the quadrature, in standard deviations


def split(output: Float[Array, "*b D2"], std: Std, std_min: float) -> tuple[Float[Array, "*b D"], Float[Array, "*b D"]]:
    """Return means and standard deviations `[..., D]`.

    Args:
        output: output of the network, `[..., 2D]`.
        std: `softplus`: `softplus(raw) + std_min`, as in Brax; `exp` and `param`: `exp(raw) + std_min`, where the
            numbers of `param` do not depend on the observation.
        std_min: added to every standard deviation; with 0, `exp` has no lower bound.
    """
    mean, raw = jnp.split(output, 2, axis=-1)
    return mean, (jax.nn.softplus(raw) if std == "softplus" else jnp.exp(raw)) + std_min


def log_jacobian(raw_action: Float[Array, "*b"]) -> Float[Array, "*b"]:
    """Return `log(1 - tanh(u)^2)` per dimension: at most 0, and 0 only at 0.

    Computed as `2 (log 2 - u - softplus(-2u))`, which neither overflows nor cancels.
    """
    return 2.0 * (math.log(2.0) - raw_action - jax.nn.softplus(-2.0 * raw_action))


def normal_log_prob(
    mean: Float[Array, "*b D"], std: Float[Array, "*b D"], raw_action: Float[Array, "*b D"]
) -> Float[Array, "*b"]:
    """Return the log-density of `u` before the squash, summed over dimensions."""
    return (-0.5 * jnp.square((raw_action - mean) / std) - jnp.log(std) - _HALF_LOG_2PI).sum(-1)


def log_prob(
    mean: Float[Array, "*b D"], std: Float[Array, "*b D"], raw_action: Float[Array, "*b D"]
) -> Float[Array, "*b"]:
    """Return the log-density of `tanh(u)`. The last term cancels in every importance ratio."""
    return normal_log_prob(mean, std, raw_action) - log_jacobian(raw_action).sum(-1)


def gaussian_entropy(std: Float[Array, "*b D"]) -> Float[Array, "*b"]:
    """Return the differential entropy before squashing, in nats, summed over dimensions; it is unbounded in `std`."""
    return (jnp.log(std) + _HALF_LOG_2PI + 0.5).sum(-1)


def sampled_entropy(key: Key, mean: Float[Array, "*b D"], std: Float[Array, "*b D"]) -> Float[Array, "*b"]:
    """Estimate the entropy of `tanh(u)` from one sample per state, without bias (Brax's `NormalTanhDistribution`)."""
    drawn = mean + std * jax.random.normal(key, mean.shape, mean.dtype)
    return gaussian_entropy(std) + log_jacobian(drawn).sum(-1)


def entropy(mean: Float[Array, "*b D"], std: Float[Array, "*b D"]) -> Float[Array, "*b"]:
    """Compute the entropy of `tanh(u)`, at most `log 2` per dimension, by the trapezoidal rule.

    The rule converges exponentially for analytic functions (Trefethen & Weideman 2014, SIAM Review 56); with 97 nodes
    over 8 standard deviations on either side the error is under 1e-4 for standard deviations up to 5.
    """
    z = jnp.linspace(-_REACH, _REACH, _NODES, dtype=mean.dtype)
    weight = jnp.exp(-0.5 * jnp.square(z))
    weight = (weight / weight.sum()).reshape((1,) * mean.ndim + (-1,))
    nodes = mean[..., None] + std[..., None] * z.reshape(weight.shape)
    return gaussian_entropy(std) + (log_jacobian(nodes) * weight).sum((-1, -2))


def kl(
    mean: Float[Array, "*b D"],
    std: Float[Array, "*b D"],
    other_mean: Float[Array, "*b D"],
    other_std: Float[Array, "*b D"],
) -> Float[Array, "*b"]:
    """Compute KL(this || other), summed over dimensions; squashing is one to one, so it is that of the Gaussians."""
    spread = jnp.square(std / other_std) + jnp.square((mean - other_mean) / other_std)
    return (0.5 * (spread - 1.0) - jnp.log(std / other_std)).sum(-1)
