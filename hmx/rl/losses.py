"""Losses per sample, unweighted; the caller averages them."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Float

from hmx.types import Array, Scalar


def clipped_surrogate(
    log_prob: Float[Array, "*b"],
    log_prob_old: Float[Array, "*b"],
    advantage: Float[Array, "*b"],
    clip_eps: Scalar,
) -> Float[Array, "*b"]:
    """Compute PPO's clipped policy loss: `-min(r A, clip(r, 1 - eps, 1 + eps) A)`.

    Schulman et al. 2017 (arXiv:1707.06347), eq. 7, with the sign turned to be minimised; `r` is the
    importance ratio `exp(log_prob - log_prob_old)`.
    """
    ratio = jnp.exp(log_prob - log_prob_old)
    clipped = jnp.clip(ratio, 1.0 - clip_eps, 1.0 + clip_eps)
    return -jnp.minimum(ratio * advantage, clipped * advantage)


def squared_error(prediction: Float[Array, "*b"], target: Float[Array, "*b"]) -> Float[Array, "*b"]:
    """Return `(prediction - target)^2 / 2`: the half makes the gradient the error itself."""
    return 0.5 * jnp.square(prediction - target)


def huber(prediction: Float[Array, "*b"], target: Float[Array, "*b"], delta: Scalar = 1.0) -> Float[Array, "*b"]:
    """Return `squared_error` up to an error of `delta`, and beyond it a line of slope `delta` (Huber 1964, eq. 2).

    With `delta` 1 its gradient is the error clipped to [-1, 1], as in Mnih et al. 2015 (Nature 518, methods).
    """
    size = jnp.abs(prediction - target)
    near = jnp.minimum(size, delta)
    return 0.5 * jnp.square(near) + delta * (size - near)


def clipped_squared_error(
    prediction: Float[Array, "*b"], target: Float[Array, "*b"], clipped_prediction: Float[Array, "*b"]
) -> Float[Array, "*b"]:
    """Return the worse of the plain and the clipped prediction's squared error (with the half).

    The value clipping of OpenAI's PPO code (Engstrom et al. 2020, arXiv:2005.12729, section 3): the gradient is 0 where
    the prediction has left the clip range and the clipped prediction is worse.
    """
    return jnp.maximum(squared_error(prediction, target), squared_error(clipped_prediction, target))
