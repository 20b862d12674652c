"""Which rows of a rollout enter a minibatch, and how much each then counts.

Prioritised replay (Schaul et al. 2016, arXiv:1511.05952, section 3.3 and 3.4) over the rows of one rollout, with the
sum of absolute advantages for a priority, as in the Metta training equations.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from hmx.types import Array, Key

_SMALLEST = 1e-37  # a float32 that is not yet denormal
_LARGEST = 1e30  # of which millions still have a finite sum


class RowProbs(NamedTuple):
    """`probs [S]`, which sum to 1, and `num_nonfinite`: how many rows had no finite magnitude (int32)."""

    probs: Array
    num_nonfinite: Array


def row_magnitude(advantage: Array, mask: Array | None = None) -> Array:
    """The sum of absolute advantages of each row, `[S]`.

    Args:
        advantage: `[S, T]`, a row per training row.
        mask: `[S, T]`, true (or above 0) for the steps that count; what the others hold is not read.
    """
    magnitude = jnp.abs(advantage)
    return (magnitude if mask is None else jnp.where(mask > 0, magnitude, 0.0)).sum(1)


def row_probs(magnitude: Array, alpha: float | Array, eps: float = 1e-6) -> RowProbs:
    """How likely each row is to be drawn: `(w + eps) / sum(w + eps)` with `w = magnitude^alpha`.

    A row whose magnitude is NaN or infinite gets `w = 0`, also where alpha is 0, and is counted: eps keeps it a
    candidate, so a caller that must never train on it has to look at the count.

    Args:
        magnitude: `[S]`, not negative.
        alpha: 0 makes all (finite) rows alike, 1 proportional to their magnitude.
        eps: what a row of magnitude 0 weighs.
    """
    finite = jnp.isfinite(magnitude)
    # chosen after the power, since anything to the power of 0 is 1, NaN included
    weight = jnp.where(finite, jnp.minimum(jnp.power(magnitude, alpha), _LARGEST), 0.0) + eps
    return RowProbs(weight / weight.sum(), (~finite).sum(dtype=jnp.int32))


def importance_weights(
    probs_drawn: Array, num_rows: int, beta: float | Array, kind: str = "max", clip: float = 10.0
) -> Array:
    """What each drawn row counts, so that being drawn more often is made up for: `(num_rows p)^-beta`.

    Args:
        probs_drawn: `[m]` probabilities of the rows of a minibatch.
        num_rows: how many rows they were drawn from.
        beta: 0 corrects nothing, 1 all of the bias.
        kind: `max` divides by the largest weight of the minibatch, so that weights only ever shrink a step (Schaul et
            al. 2016, section 3.4); `clip` bounds them by `clip`; `raw` leaves them: a row of small advantage weighs
            thousands.
        clip: highest weight of kind `clip`.

    Raises:
        KeyError: any other kind.
    """
    probs = jnp.maximum(probs_drawn, _SMALLEST)
    if kind == "max":
        return jnp.power(probs / probs.min(), -beta)
    raw = jnp.power(num_rows * probs, -beta)
    return {"clip": jnp.minimum(raw, clip), "raw": raw}[kind]


def draw_rows(key: Key, probs: Array, num_drawn: int) -> Array:
    """Different rows, drawn one after the other from what is left: int32 `[num_drawn]` in the order drawn.

    The largest of `log p + Gumbel noise`, which is drawing without replacement (Vieira 2014, "Gumbel-max trick and
    weighted reservoir sampling"; Kool et al. 2019, arXiv:1903.06059). Rows of probability 0 come last, once all others
    are drawn. All rows are drawn, in a random order, where `num_drawn` is their number.

    Args:
        key: spent here.
        probs: `[S]`, not negative; need not sum to 1.
        num_drawn: at most S.
    """
    # "high": with ordinary resolution the noise ends at 16, and rows of probability 1e-7 would hardly ever come up
    noise = jax.random.gumbel(key, probs.shape, probs.dtype, mode="high")
    return jax.lax.top_k(jnp.log(probs) + noise, num_drawn)[1].astype(jnp.int32)
