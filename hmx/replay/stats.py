"""Metrics of a prioritised buffer."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from hmx.config.learning import ReplayConfig
from hmx.replay.state import ReplayState, all_densities, all_leaves, ess_share, filled, scored_slots
from hmx.types import Mean


def replay_metrics(state: ReplayState, options: ReplayConfig) -> dict[str, Mean]:
    """Compute metrics of all slots in O(N log N); a metric that is not defined yet has no data.

    Returns:
        `ess`: effective sample size of the probabilities, as a share of the transitions. `prob_ratio`: largest
        divided by smallest probability. `coverage`: share of the transitions with a score. `staleness_p50`,
        `staleness_p90`: quantiles of the number of transitions added since a score was computed. `score_zero`: share
        of scores that are 0. `score_td_rank`: Spearman's rank correlation of scores and TD errors. `alpha_td`,
        `alpha_c`: exponents in use. `nonfinite`: TD errors and scores that were not finite, so far.
    """
    is_filled, scored = filled(state), scored_slots(state)
    any_filled, any_scored = state.size > 0, state.num_scored > 0
    densities = all_densities(state, options, all_leaves(state, options))
    smallest = jnp.where(is_filled, densities, jnp.inf).min()
    age = (state.num_added - state.scored_at).astype(jnp.float32)
    rank, known = spearman(state.consequence_scores, state.td_errors, scored)
    values = {
        "ess": (ess_share(densities, state.size), any_filled),
        "prob_ratio": (densities.max() / smallest, any_filled),
        "coverage": (state.num_scored / jnp.maximum(state.size, 1), any_filled),
        "staleness_p50": (quantile(age, scored, 0.5), any_scored),
        "staleness_p90": (quantile(age, scored, 0.9), any_scored),
        "score_zero": (
            jnp.where(scored, state.consequence_scores == 0.0, False).sum() / jnp.maximum(state.num_scored, 1),
            any_scored,
        ),
        "score_td_rank": (rank, known),
        "alpha_td": (state.alphas[0], any_filled),
        "alpha_c": (state.alphas[1], any_filled),
        "nonfinite": (state.num_nonfinite.astype(jnp.float32), any_filled),
    }
    return {name: Mean.of(value, where) for name, (value, where) in values.items()}


def quantile(values: Float[Array, " N"], where: Bool[Array, " N"], share: float) -> Float[Array, ""]:
    """Return the quantile `share` of the values under `where`, without interpolation."""
    ordered = jnp.sort(jnp.where(where, values, jnp.inf))
    place = jnp.ceil(share * where.sum()).astype(jnp.int32) - 1
    return ordered[jnp.clip(place, 0, values.shape[0] - 1)]


def spearman(
    a: Float[Array, " N"], b: Float[Array, " N"], where: Bool[Array, " N"]
) -> tuple[Float[Array, ""], Bool[Array, ""]]:
    """Compute Spearman's rank correlation of `a` and `b` under `where`, and whether it is defined.

    Equal values have the mean of their ranks. The correlation is undefined if either side is constant.
    """
    rank_a, rank_b = _centred_ranks(a, where), _centred_ranks(b, where)
    spread = jnp.sqrt(jnp.square(rank_a).sum()) * jnp.sqrt(jnp.square(rank_b).sum())
    return (rank_a * rank_b).sum() / jnp.where(spread > 0.0, spread, 1.0), spread > 0.0


def _centred_ranks(values: Array, where: Array) -> Array:
    """Compute ranks minus their mean, as a share of their number; 0 outside `where`."""
    marked = jnp.where(where, values, jnp.inf)
    ordered = jnp.sort(marked)
    below = jnp.searchsorted(ordered, marked, side="left", method="sort")
    up_to = jnp.searchsorted(ordered, marked, side="right", method="sort")
    count = jnp.maximum(where.sum(), 1)
    return jnp.where(where, ((below + up_to) - count).astype(jnp.float32) / count, 0.0)
