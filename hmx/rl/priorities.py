"""Prioritised sampling of the sequences of a rollout, and their importance weights.

Prioritised replay (Schaul et al. 2016, arXiv:1511.05952, section 3.3 and 3.4) over the sequences of one rollout. The
priority is the sum of absolute advantages, as in the Metta training equations.
"""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Float, Int, Shaped

from hmx.types import Array, Key, Scalar

_SMALLEST = 1e-37  # a float32 that is not yet denormal
_LARGEST = 1e30  # the sum of millions is still finite
_EPS = 1e-6  # weight of a sequence of magnitude 0


def sequence_magnitude(advantage: Float[Array, "S T"], mask: Shaped[Array, "S T"] | None = None) -> Float[Array, " S"]:
    """Return the sum of absolute advantages of each sequence.

    Args:
        advantage: advantage of each step.
        mask: true (or above 0) for the steps that count; the others are not read.
    """
    magnitude = jnp.abs(advantage)
    return (magnitude if mask is None else jnp.where(mask > 0, magnitude, 0.0)).sum(1)


def sequence_probs(magnitude: Float[Array, " S"], alpha: Scalar) -> tuple[Float[Array, " S"], Int[Array, ""]]:
    """Return the probability of drawing each sequence: `(w + 1e-6) / sum(w + 1e-6)` with `w = magnitude^alpha`.

    A sequence whose magnitude is NaN or infinite gets `w = 0`, even if alpha is 0, and is counted. It can still be
    sampled, so a caller that must never train on it has to check the count.

    Args:
        magnitude: not negative.
        alpha: 0 makes all (finite) sequences equally likely, 1 proportional to their magnitude.

    Returns:
        The probabilities, which sum to 1, and the number of sequences without finite magnitude.
    """
    finite = jnp.isfinite(magnitude)
    # selected after the power, since anything to the power of 0 is 1, NaN included
    weight = jnp.where(finite, jnp.minimum(jnp.power(magnitude, alpha), _LARGEST), 0.0) + _EPS
    return weight / weight.sum(), (~finite).sum(dtype=jnp.int32)


def importance_weights(
    probs_drawn: Float[Array, "*m"],
    count: int,
    beta: Scalar,
    kind: Literal["max", "mean", "clip", "raw"] = "max",
    clip: float = 10.0,
) -> Float[Array, "*m"]:
    """Return the importance weights `(count p)^-beta`, which correct for the probabilities of drawing.

    Args:
        probs_drawn: probabilities of the sequences of a minibatch.
        count: number of sequences they were drawn from.
        beta: 0 corrects nothing, 1 all of the bias.
        kind: `max` divides by the largest weight of the minibatch, so that weights only ever shrink a step (Schaul et
            al. 2016, section 3.4), by an amount that depends on the size of the minibatch; `mean` divides by their
            mean, so that the size of a step depends less on that of the minibatch; `clip` bounds them by `clip`; `raw`
            leaves them: a sequence of small advantage then has a weight of thousands.
        clip: highest weight of kind `clip`.

    Raises:
        KeyError: any other kind.
    """
    probs = jnp.maximum(probs_drawn, _SMALLEST)
    if kind == "max":
        return jnp.power(probs / probs.min(), -beta)
    raw = jnp.power(count * probs, -beta)
    return {"mean": raw / raw.mean(), "clip": jnp.minimum(raw, clip), "raw": raw}[kind]


def draw_sequences(key: Key, probs: Float[Array, " S"], num_drawn: int) -> Int[Array, " m"]:
    """Draw sequences without replacement: int32 `[num_drawn]`, in the order drawn.

    Take the largest values of `log p + Gumbel noise` (Vieira 2014, "Gumbel-max trick and
    weighted reservoir sampling"; Kool et al. 2019, arXiv:1903.06059). Sequences of probability 0 come last. If
    `num_drawn` is the number of sequences, all are drawn in a random order.

    Args:
        key: spent here.
        probs: not negative; need not sum to 1.
        num_drawn: at most S.
    """
    return jax.lax.top_k(_perturbed(key, probs), num_drawn)[1].astype(jnp.int32)


def inclusion_probs(key: Key, probs: Float[Array, " S"], num_drawn: int) -> Float[Array, " S"]:
    """Return the probability that each sequence is drawn by `draw_sequences` with the same key and arguments.

    Given the first perturbed log-probability `k` that was not drawn, a sequence is drawn with probability
    `1 - exp(-p exp(-k))`; weights of one over it make sums over the drawn sequences unbiased estimates of sums over all
    (Kool et al. 2019, section 4.1).

    Args:
        key: that of the draw.
        probs: not negative; need not sum to 1.
        num_drawn: at most S.
    """
    if num_drawn == probs.shape[0]:
        return jnp.ones_like(probs)
    threshold = jax.lax.top_k(_perturbed(key, probs), num_drawn + 1)[0][-1]
    return -jnp.expm1(-jnp.exp(jnp.log(probs) - threshold))


def _perturbed(key: Key, probs: Array) -> Array:
    # "high": with the default resolution the noise is at most 16, and probabilities of 1e-7 would almost never be drawn
    noise = jax.random.gumbel(key, probs.shape, probs.dtype, mode="high")
    return jnp.log(probs) + noise
