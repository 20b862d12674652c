"""What a replay buffer holds, and what is drawn from it."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from hmx.replay import forest, priority
from hmx.replay.forest import Forest
from hmx.replay.priority import Options
from hmx.types import Array


class ReplayState(NamedTuple):
    """A ring buffer on the device; slots from `size` on are empty, and hold copies of the first transitions."""

    items: Any  # [N, ...] per leaf
    env_states: Any  # the environment before the step; the axis of N is `Options.state_axis`
    td_errors: Array  # [N] float32: latest |TD error|; until there is one, the largest of any transition
    consequence_scores: Array  # [N] float32, not negative; of no meaning where not scored
    scored: Array  # [N] bool
    scored_at: Array  # [N] uint32: `num_added` when scored; of no meaning where not scored
    birth: Array  # [N] uint32: how many transitions were added before this one
    num_added: Array  # uint32: wraps around after 2^32, where only differences are still right
    position: Array  # int32: where the next transition goes
    size: Array  # int32: slots filled
    num_scored: Array  # int32: slots scored
    td_max: Array  # float32: the largest |TD error| so far, 0 while there is none
    score_scale: Array  # float32: the mean score when the trees were last built
    neutral: Array  # float32: the mean of shaped scores then
    alphas: Array  # [2] float32: exponents of TD errors and scores in force
    num_nonfinite: Array  # int32: TD errors and scores that were NaN or infinite, and so counted as 0
    forest: Forest  # the priorities: leaves [trees, N], and sums above


class Batch(NamedTuple):
    """Transitions drawn for a gradient step; `birth` says whether a slot still holds the same one later."""

    index: Array  # type: ignore[assignment]  # int32 [B]
    birth: Array  # uint32 [B]
    items: Any  # [B, ...]
    probs: Array  # [B] float32: how likely each was to be drawn
    weights: Array  # [B] float32: importance weights


class Chosen(NamedTuple):
    """Transitions to be scored; entries that are not `valid` find the buffer too small and are to be ignored."""

    index: Array  # type: ignore[assignment]  # int32 [n]
    birth: Array  # uint32 [n]
    valid: Array  # bool [n]


def score_weight(state: ReplayState, options: Options, scores: Array) -> Array:
    """Scores as shaped for the trees."""
    return priority.shaped(scores / state.score_scale, state.alphas[1], options.eps_c)


def leaves_of(state: ReplayState, options: Options, td_error: Array, scores: Array, scored: Array) -> Array:
    """What the trees hold for filled slots, `[trees, ...]`."""
    td_weight = priority.shaped(td_error, state.alphas[0], options.eps_td)
    return priority.leaves(options, td_weight, score_weight(state, options, scores), scored, state.neutral)


def with_scale(state: ReplayState, options: Options) -> ReplayState:
    """The unit of scores and the weight of a slot without one, anew from all that are scored."""
    scored = scored_slots(state)
    count = jnp.maximum(state.num_scored, 1)
    mean = jnp.where(scored, state.consequence_scores, 0.0).sum() / count
    state = state._replace(score_scale=jnp.where(mean > 0.0, mean, 1.0))
    weight = jnp.where(scored, score_weight(state, options, state.consequence_scores), 0.0).sum() / count
    return state._replace(neutral=jnp.where(state.num_scored > 0, weight, 1.0))


def all_leaves(state: ReplayState, options: Options) -> Array:
    """What the trees should hold, `[trees, N]`."""
    leaves = leaves_of(state, options, state.td_errors, state.consequence_scores, state.scored)
    return jnp.where(filled(state)[None], leaves, 0.0)


def all_densities(state: ReplayState, options: Options, leaves: Array) -> Array:
    """`N p` of every slot `[N]`, 0 for empty ones, if the trees held these leaves."""
    densities = priority.densities(options, leaves, leaves.sum(1), state.scored, state.size, state.num_scored)
    return jnp.where(filled(state), densities, 0.0)


def rebuilt(state: ReplayState, options: Options) -> ReplayState:
    """Scale and trees anew from TD errors and scores; O(N)."""
    state = with_scale(state, options)
    return state._replace(forest=forest.build(all_leaves(state, options)))


def filled(state: ReplayState) -> Array:
    """Which slots hold a transition, bool `[N]`."""
    return jax.lax.iota(jnp.int32, state.birth.shape[0]) < state.size


def scored_slots(state: ReplayState) -> Array:
    """Which filled slots have a score, bool `[N]`."""
    return state.scored & filled(state)
