"""From TD errors and consequence scores to the weights that slots are drawn by."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp

from hmx.errors import HmxError
from hmx.types import Array

MIXINGS = ("td", "additive", "multiplicative")
NORMS = ("max", "bound", "raw")

_LARGEST = 1e30  # of which millions still have a finite sum


@dataclass(frozen=True, kw_only=True)
class Options:
    """How replay is prioritised.

    Attributes:
        mixing: what draws a slot: `td`, its TD error alone (prioritised replay, Schaul et al. 2016, arXiv:1511.05952);
            `additive`, `p = mu p_C + (1 - mu) p_delta`; `multiplicative`, `p ~ p_C p_delta`.
        mu: share of draws by consequence, in additive mixing. 0 is prioritised replay to the bit.
        alpha_td: exponent of `|TD error| + eps_td`; 0 makes all slots alike.
        alpha_c: exponent of `score / mean score + eps_c`.
        eps_td: what a TD error of 0 weighs, in reward units.
        eps_c: what a score of 0 weighs, as a share of the mean score, so that the unit of a metric does not matter.
        target_ess: effective sample size `1 / (N sum p^2)` to reach by scaling both exponents; 0 leaves them.
        td_max_decay: factor per write of TD errors on the largest one seen, which new transitions start from.
        is_norm: importance weights divided by the largest of the batch (`max`), by the largest that any slot could have
            (`bound`, so that a batch does not decide its own step size), or as they are (`raw`).
        state_axis: axis of the batch in the leaves of environment states, 0 or -1.
    """

    mixing: str = "additive"
    mu: float = 0.5
    alpha_td: float = 0.6
    alpha_c: float = 0.6
    eps_td: float = 0.01
    eps_c: float = 0.01
    target_ess: float = 0.0
    td_max_decay: float = 1.0
    is_norm: str = "max"
    state_axis: int = 0


def check(options: Options) -> None:
    """Refuse what cannot work.

    Raises:
        HmxError: an option is out of its range; the message names it.
    """
    ranges = [
        ("mixing", options.mixing in MIXINGS, f"one of {', '.join(MIXINGS)}"),
        ("mu", 0.0 <= options.mu <= 1.0, "a share from 0 to 1"),
        ("alpha_td", options.alpha_td >= 0.0, "0 or more"),
        ("alpha_c", options.alpha_c >= 0.0, "0 or more"),
        ("eps_td", options.eps_td > 0.0, "above 0, or slots without error are never drawn again"),
        ("eps_c", options.eps_c > 0.0, "above 0, or slots without consequence are never drawn"),
        ("target_ess", 0.0 <= options.target_ess <= 1.0, "a share from 0 to 1"),
        ("td_max_decay", 0.0 < options.td_max_decay <= 1.0, "above 0 and at most 1"),
        ("is_norm", options.is_norm in NORMS, f"one of {', '.join(NORMS)}"),
        ("state_axis", options.state_axis in (0, -1), "0 or -1"),
    ]
    for name, holds, wanted in ranges:
        if not holds:
            raise HmxError(f"replay: {name} = {getattr(options, name)!r} cannot work", f"{name} is {wanted}")


def shaped(magnitude: Array, alpha: Array, eps: float) -> Array:
    """`(magnitude + eps)^alpha`; exactly 1 everywhere for alpha 0."""
    return jnp.minimum(jnp.power(magnitude + eps, alpha), _LARGEST)


def magnitude(values: Array) -> tuple[Array, Array]:
    """Absolute values, with 0 for those that are not finite, and how many those were (int32)."""
    finite = jnp.isfinite(values)
    return jnp.where(finite, jnp.abs(values), 0.0), (~finite).sum(dtype=jnp.int32)


def num_trees(options: Options) -> int:
    """Additive mixing draws from two trees, all else from one."""
    return 2 if options.mixing == "additive" else 1


def leaves(options: Options, td_weight: Array, score_weight: Array, scored: Array, neutral: Array) -> Array:
    """What the trees hold for some slots, `[trees, ...]`.

    Additive: by TD error, and by score with nothing for slots without one; these are drawn apart, see `densities`.
    Multiplicative: the product, a slot without score counting like the mean of those with one.
    """
    if options.mixing == "td":
        return td_weight[None]
    if options.mixing == "additive":
        return jnp.stack([td_weight, jnp.where(scored, score_weight, 0.0)])
    return (td_weight * jnp.where(scored, score_weight / neutral, 1.0))[None]


def densities(options: Options, weights: Array, totals: Array, scored: Array, size: Array, num_scored: Array) -> Array:
    """How much likelier than under uniform replay slots are drawn: `N p`, exactly 1 where alpha is 0.

    In additive mixing a slot without a score has `p_C = 1/N`: so have the slots with one, on average, and being
    scored or not changes nothing by itself.

    Args:
        options: the mixing.
        weights: `[trees, ...]` leaves of the slots.
        totals: `[trees]` sums over all slots.
        scored: `[...]` whether the slots have a score.
        size: how many slots are filled.
        num_scored: how many of them have a score.
    """
    by_first: Array = weights[0] / (totals[0] / size)
    if options.mixing != "additive":
        return by_first
    mean_score = jnp.where(num_scored > 0, totals[1] / jnp.maximum(num_scored, 1), 1.0)
    by_score = jnp.where(scored, weights[1] / mean_score, 1.0)
    mu = jnp.float32(options.mu)
    mixed: Array = mu * by_score + (1.0 - mu) * by_first
    return mixed


def density_bound(
    options: Options, alphas: Array, totals: Array, size: Array, num_scored: Array, neutral: Array
) -> Array:
    """A lower bound of `N p` over all slots that could be in the buffer."""
    floor_td = jnp.power(options.eps_td, alphas[0])
    floor_c = jnp.minimum(jnp.power(options.eps_c, alphas[1]), neutral)
    weights = leaves(options, floor_td, floor_c, jnp.ones((), bool), neutral)
    scored = num_scored > 0
    return densities(options, weights, totals, scored, size, num_scored)
