"""The state of a replay buffer, samples from it, and exponents that fit an effective sample size."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt32

from hmx.config.learning import ReplayConfig
from hmx.replay import forest, priority
from hmx.replay.forest import Forest
from hmx.replay.priority import exponents


class ReplayState(NamedTuple):
    """A ring buffer on the device; slots from `size` on are empty, and hold copies of the first transitions."""

    items: Any  # [N, ...] per leaf
    env_states: Any  # the environment before the step; the axis of N is the `state_axis` of the environment
    td_errors: Float[Array, " N"]  # latest |TD error|; a new transition has the largest so far
    consequence_scores: Float[Array, " N"]  # not negative; undefined where not scored
    scored: Bool[Array, " N"]
    scored_at: UInt32[Array, " N"]  # `num_added` when scored; undefined where not scored
    birth: UInt32[Array, " N"]  # number of transitions added before this one
    num_added: UInt32[Array, ""]  # wraps around after 2^32; differences stay right
    position: Int[Array, ""]  # slot of the next transition
    size: Int[Array, ""]  # slots filled
    num_scored: Int[Array, ""]  # slots scored
    td_max: Float[Array, ""]  # the largest |TD error| so far, 0 before the first
    score_scale: Float[Array, ""]  # the mean score when the trees were last built
    neutral: Float[Array, ""]  # the mean of shaped scores at that time
    alphas: Float[Array, " 2"]  # exponents of TD errors and scores in use
    num_nonfinite: Int[Array, ""]  # TD errors and scores that were NaN or infinite, and counted as 0
    forest: Forest  # the priorities: leaves [trees, N], and sums above


class ReplayBatch(NamedTuple):
    """Transitions sampled for a gradient step; `birth` shows later whether a slot still holds the same one."""

    index: Int[Array, " B"]  # type: ignore[assignment]
    birth: UInt32[Array, " B"]
    items: Any  # [B, ...]
    probs: Float[Array, " B"]  # probability of sampling each
    weights: Float[Array, " B"]  # importance weights


class Chosen(NamedTuple):
    """Transitions to score; ignore entries that are not `valid`: they exceed the buffer."""

    index: Int[Array, " n"]  # type: ignore[assignment]
    birth: UInt32[Array, " n"]
    valid: Bool[Array, " n"]


def score_weight(state: ReplayState, options: ReplayConfig, scores: Array) -> Array:
    """Shape scores for the trees."""
    return priority.shaped(scores / state.score_scale, state.alphas[1], priority.EPS_C)


def leaves_of(state: ReplayState, options: ReplayConfig, td_error: Array, scores: Array, scored: Array) -> Array:
    """Compute the leaves of the trees for filled slots, `[trees, ...]`."""
    td_weight = priority.shaped(td_error, state.alphas[0], options.eps_td)
    return priority.leaves(options, td_weight, score_weight(state, options, scores), scored)


def with_scale(state: ReplayState, options: ReplayConfig) -> ReplayState:
    """Recompute the unit of scores, and the weight of unscored slots, from all scored slots."""
    scored = scored_slots(state)
    count = jnp.maximum(state.num_scored, 1)
    mean = jnp.where(scored, state.consequence_scores, 0.0).sum() / count
    state = state._replace(score_scale=jnp.where(mean > 0.0, mean, 1.0))
    weight = jnp.where(scored, score_weight(state, options, state.consequence_scores), 0.0).sum() / count
    return state._replace(neutral=jnp.where(state.num_scored > 0, weight, 1.0))


def all_leaves(state: ReplayState, options: ReplayConfig) -> Float[Array, "trees N"]:
    """Compute the leaves of the trees."""
    leaves = leaves_of(state, options, state.td_errors, state.consequence_scores, state.scored)
    return jnp.where(filled(state)[None], leaves, 0.0)


def all_densities(state: ReplayState, options: ReplayConfig, leaves: Float[Array, "trees N"]) -> Float[Array, " N"]:
    """Compute `N p` of every slot, 0 for empty ones, for trees with these leaves."""
    densities = priority.densities(options, leaves, leaves.sum(1), state.scored, state.size, state.num_scored)
    return jnp.where(filled(state), densities, 0.0)


def rebuilt(state: ReplayState, options: ReplayConfig) -> ReplayState:
    """Rebuild scale and trees from TD errors and scores; O(N)."""
    state = with_scale(state, options)
    return state._replace(forest=forest.build(all_leaves(state, options)))


def filled(state: ReplayState) -> Bool[Array, " N"]:
    """Return which slots hold a transition."""
    return jax.lax.iota(jnp.int32, state.birth.shape[0]) < state.size


def scored_slots(state: ReplayState) -> Bool[Array, " N"]:
    """Return which filled slots have a score."""
    return state.scored & filled(state)


_HIGHEST = 8.0  # with this exponent, almost only the largest value counts
_ROUNDS = 20  # halve the interval to 8 / 2^20


def ess_share(densities: Float[Array, " N"], size: Int[Array, ""]) -> Float[Array, ""]:
    """Compute the effective sample size `(sum p)^2 / sum p^2` (Kish 1965) as a share of `size`, from `N p`."""
    return jnp.square(densities.sum()) / (jnp.maximum(size, 1) * jnp.maximum(jnp.square(densities).sum(), 1e-30))


def fitted(state: ReplayState, options: ReplayConfig) -> ReplayState:
    """Scale the exponents by one factor until the effective sample size is `options.target_ess`, by bisection.

    The larger of the two exponents ends between 0 and 8; at 8 if all weights are equal, as no exponent matters then.
    """
    base = jnp.array(exponents(options), jnp.float32)
    largest = max(exponents(options))
    if not largest:
        return state

    def with_factor(factor: Array) -> ReplayState:
        return with_scale(state._replace(alphas=base * factor), options)

    def halve(_: Array, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bounds
        middle = (low + high) / 2
        tried = with_factor(middle)
        share = ess_share(all_densities(tried, options, all_leaves(tried, options)), state.size)
        too_flat = share > options.target_ess
        return jnp.where(too_flat, middle, low), jnp.where(too_flat, high, middle)

    bounds = jnp.float32(0.0), jnp.float32(_HIGHEST / largest)
    low, high = jax.lax.fori_loop(0, _ROUNDS, halve, bounds)
    return with_factor((low + high) / 2)
