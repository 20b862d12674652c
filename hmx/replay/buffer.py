"""The replay buffer: a ring of transitions with environment states, sampled by TD error and consequence score."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from hmx.config.schema import ReplayConfig, Selection
from hmx.errors import HmxError
from hmx.replay import forest, priority
from hmx.replay.state import (
    Chosen,
    ReplayBatch,
    ReplayState,
    all_densities,
    all_leaves,
    filled,
    fitted,
    leaves_of,
    rebuilt,
    scored_slots,
    with_scale,
)
from hmx.rl.priorities import importance_weights
from hmx.types import Array, Key


class Replay(NamedTuple):
    """A buffer as pure functions of its state, all of which may be compiled, scanned and vmapped.

    - `init(items, env_states)`: an empty buffer for batches like these.
    - `add(state, items, env_states)`: add a batch of transitions in place of the oldest ones, with their priorities.
    - `sample(state, key, batch_size, is_beta)`: a `ReplayBatch`, with replacement and importance weights
      `(N p)^-is_beta`. At least one transition must be in the buffer.
    - `set_priority(state, index, birth, td_error)`: set TD errors where the slot still holds the transition of that
      birth.
    - `set_scores(state, index, birth, scores)`: the same for consequence scores; O(N), since the weight of slots
      without a score changes with them. Exponents are fitted again if there is a `target_ess`.
    - `retune(state)`: fit exponents without new scores, for replay by TD error alone.
    - `choose(state, key, num, selection)`: `Chosen` transitions to score, without replacement: `stale`, those without a
      score in random order, then the oldest scores; `uniform`; or `replay`, in proportion to `probs`.
    - `env_states(state, index)`: the environment states before these transitions.
    - `at(state, start)`, `put(state, start, stored)`: read and write the transitions and environment states of
      `num_envs` slots from `start` on, without their priorities.
    - `window(state, index, num_steps)`: the slots `[num_steps, B]` of a transition and its successors in the same
      environment, and whether each still holds them.
    - `probs(state)`: the sampling probability of every slot, `[N]`; O(N).
    """

    init: Callable[[Any, Any], ReplayState]
    add: Callable[[ReplayState, Any, Any], ReplayState]
    sample: Callable[[ReplayState, Key, int, float | Array], ReplayBatch]
    set_priority: Callable[[ReplayState, Array, Array, Array], ReplayState]
    set_scores: Callable[[ReplayState, Array, Array, Array], ReplayState]
    retune: Callable[[ReplayState], ReplayState]
    choose: Callable[[ReplayState, Key, int, Selection], Chosen]
    env_states: Callable[[ReplayState, Array], Any]
    at: Callable[[ReplayState, Array], tuple[Any, Any]]
    put: Callable[[ReplayState, Array, tuple[Any, Any]], ReplayState]
    window: Callable[[ReplayState, Array, int], tuple[Array, Array]]
    probs: Callable[[ReplayState], Array]


def make_replay(capacity: int, num_envs: int, options: ReplayConfig, state_axis: int = 0) -> Replay:
    """Make a buffer of `capacity` transitions, to which `num_envs` are added at a time.

    Args:
        capacity: number of slots; a multiple of `num_envs`, so that no batch is split at the end of the ring.
        num_envs: transitions per `add`.
        options: how it is prioritised.
        state_axis: axis of the batch in the leaves of environment states, 0 or -1.
    """
    if capacity < num_envs or capacity % num_envs:
        fitting = max(capacity // num_envs, 1) * num_envs
        raise HmxError(
            f"cannot make a replay buffer of {capacity:,} transitions: not a multiple of {num_envs:,} environments",
            f"replay.capacity={fitting}",
        )
    put = partial(_put, state_axis=state_axis)
    return Replay(
        init=partial(_init, capacity=capacity, options=options, state_axis=state_axis),
        add=partial(_add, num_envs=num_envs, options=options, put=put),
        sample=partial(_sample, options=options),
        set_priority=partial(_set_priority, options=options),
        set_scores=partial(_set_scores, options=options),
        retune=partial(_retune, options=options),
        choose=partial(_choose, options=options),
        env_states=lambda state, index: _take(state.env_states, index, state_axis),
        at=partial(_at, num_envs=num_envs, state_axis=state_axis),
        put=put,
        window=partial(_window, num_envs=num_envs),
        probs=partial(_probs, options=options),
    )


def _init(items: Any, env_states: Any, *, capacity: int, options: ReplayConfig, state_axis: int) -> ReplayState:
    nowhere = jnp.zeros(capacity, jnp.int32)
    zero, one = jnp.zeros((), jnp.int32), jnp.ones((), jnp.float32)
    return ReplayState(
        items=_take(items, nowhere, 0),
        env_states=_take(env_states, nowhere, state_axis),
        td_errors=jnp.zeros(capacity),
        consequence_scores=jnp.zeros(capacity),
        scored=jnp.zeros(capacity, bool),
        scored_at=jnp.zeros(capacity, jnp.uint32),
        birth=jnp.zeros(capacity, jnp.uint32),
        num_added=jnp.zeros((), jnp.uint32),
        position=zero,
        size=zero,
        num_scored=zero,
        td_max=jnp.zeros(()),
        score_scale=one,
        neutral=one,
        alphas=jnp.array(priority.exponents(options), jnp.float32),
        num_nonfinite=zero,
        forest=forest.build(jnp.zeros((priority.num_trees(options), capacity))),
    )


def _add(
    state: ReplayState,
    items: Any,
    env_states: Any,
    *,
    num_envs: int,
    options: ReplayConfig,
    put: Callable[..., ReplayState],
) -> ReplayState:
    capacity, num = state.birth.shape[0], jax.tree.leaves(items)[0].shape[0]
    if num != num_envs:
        raise ValueError(f"{num} transitions added to a buffer made for {num_envs} at a time")
    index = state.position + jnp.arange(num, dtype=jnp.int32)
    td_error = jnp.full(num, jnp.where(state.td_max > 0.0, state.td_max, 1.0))
    unscored = jnp.zeros(num, bool)
    leaves = leaves_of(state, options, td_error, jnp.zeros(num), unscored)
    trees = state.forest
    for tree in range(leaves.shape[0]):
        trees = forest.update(trees, tree, index, leaves[tree])
    overwritten = jnp.where(state.size == capacity, state.scored[index], False).sum(dtype=jnp.int32)

    def write(buffer: Array, new: Array) -> Array:
        return jax.lax.dynamic_update_slice_in_dim(buffer, new, state.position, 0)

    return put(state, state.position, (items, env_states))._replace(
        td_errors=write(state.td_errors, td_error),
        consequence_scores=write(state.consequence_scores, jnp.zeros(num)),
        scored=write(state.scored, unscored),
        birth=write(state.birth, state.num_added + jnp.arange(num, dtype=jnp.uint32)),
        num_added=state.num_added + jnp.uint32(num),
        position=(state.position + num) % capacity,
        size=jnp.minimum(state.size + num, capacity),
        num_scored=state.num_scored - overwritten,
        forest=trees,
    )


def _at(state: ReplayState, start: Array, *, num_envs: int, state_axis: int) -> tuple[Any, Any]:
    def read(buffer: Array, axis: int) -> Array:
        return jax.lax.dynamic_slice_in_dim(buffer, start, num_envs, axis % buffer.ndim)

    items = jax.tree.map(partial(read, axis=0), state.items)
    return items, jax.tree.map(partial(read, axis=state_axis), state.env_states)


def _put(state: ReplayState, start: Array, stored: tuple[Any, Any], *, state_axis: int) -> ReplayState:
    def put(buffer: Array, new: Array, axis: int) -> Array:
        return jax.lax.dynamic_update_slice_in_dim(buffer, new, start, axis % buffer.ndim)

    return state._replace(
        items=jax.tree.map(partial(put, axis=0), state.items, stored[0]),
        env_states=jax.tree.map(partial(put, axis=state_axis), state.env_states, stored[1]),
    )


def _sample(
    state: ReplayState, key: Key, batch_size: int, is_beta: float | Array, *, options: ReplayConfig
) -> ReplayBatch:
    index = _draw(state, key, batch_size, options)
    totals = forest.totals(state.forest)
    weights = forest.leaves_at(state.forest, index)
    densities = priority.densities(options, weights, totals, state.scored[index], state.size, state.num_scored)
    kind = "raw" if options.is_norm == "bound" else options.is_norm
    is_weights = importance_weights(densities, 1, is_beta, kind)
    if options.is_norm == "bound":
        lowest = priority.density_bound(options, state.alphas, totals, state.size, state.num_scored, state.neutral)
        is_weights = is_weights / importance_weights(lowest, 1, is_beta, "raw")
    return ReplayBatch(index, state.birth[index], _take(state.items, index, 0), densities / state.size, is_weights)


def _draw(state: ReplayState, key: Key, batch_size: int, options: ReplayConfig) -> Array:
    """Sample slots; in additive mixing a share `mu` of the batch by score, and the rest by TD error."""
    k_draw, k_count, k_slot = jax.random.split(key, 3)
    entry = jnp.arange(batch_size, dtype=jnp.int32)
    if options.mixing != "additive":
        return forest.draw(state.forest, k_draw, jnp.zeros_like(entry), entry, jnp.full_like(entry, batch_size))
    whole, rest = divmod(options.mu * batch_size, 1.0)
    by_score = int(whole) + (jax.random.uniform(k_count) < rest).astype(jnp.int32)
    from_scores = entry < by_score
    stratum = jnp.where(from_scores, entry, entry - by_score)
    num_strata = jnp.where(from_scores, by_score, batch_size - by_score)
    index = forest.draw(state.forest, k_draw, from_scores.astype(jnp.int32), stratum, num_strata)
    # p_C is 1/N for slots without a score: take a random slot, but if it has a score, sample among the scored ones.
    slot = jax.random.randint(k_slot, (batch_size,), 0, jnp.maximum(state.size, 1))
    return jnp.where(from_scores & ~state.scored[slot], slot, index)


def _set_priority(
    state: ReplayState, index: Array, birth: Array, td_error: Array, *, options: ReplayConfig
) -> ReplayState:
    errors, num_nonfinite = priority.magnitude(td_error)
    td_errors = state.td_errors.at[_still(state, index, birth)].set(errors, mode="drop")
    state = state._replace(
        td_errors=td_errors,
        td_max=jnp.maximum(state.td_max, errors.max()),
        num_nonfinite=state.num_nonfinite + num_nonfinite,
    )
    # From what the slots now hold: a transition sampled twice gets one leaf, and a replaced one keeps that of its heir.
    leaves = leaves_of(state, options, td_errors[index], state.consequence_scores[index], state.scored[index])
    return state._replace(forest=forest.update(state.forest, 0, index, leaves[0]))


def _set_scores(state: ReplayState, index: Array, birth: Array, scores: Array, *, options: ReplayConfig) -> ReplayState:
    values, num_nonfinite = priority.magnitude(scores)
    still = _still(state, index, birth)
    state = state._replace(
        consequence_scores=state.consequence_scores.at[still].set(values, mode="drop"),
        scored=state.scored.at[still].set(True, mode="drop"),
        scored_at=state.scored_at.at[still].set(state.num_added, mode="drop"),
        num_nonfinite=state.num_nonfinite + num_nonfinite,
    )
    state = state._replace(num_scored=scored_slots(state).sum(dtype=jnp.int32))
    return _retune(state, options=options)


def _retune(state: ReplayState, *, options: ReplayConfig) -> ReplayState:
    if options.target_ess > 0.0:
        state = fitted(with_scale(state, options), options)
    return rebuilt(state, options)


def _choose(state: ReplayState, key: Key, num: int, selection: Selection, *, options: ReplayConfig) -> Chosen:
    capacity = state.birth.shape[0]
    if num > capacity:
        raise HmxError(f"cannot score {num:,} transitions at once: the buffer holds {capacity:,}", "score fewer")
    if selection == "replay":
        noise = jax.random.gumbel(key, (capacity,), mode="high")
        rank = jnp.log(_probs(state, options=options)) + noise
    else:
        rank = jax.random.uniform(key, (capacity,))
    if selection == "stale":
        age = (state.num_added - state.scored_at).astype(jnp.float32)
        rank = jnp.where(state.scored, -1.0 / (1.0 + age), rank)
    rank, index = jax.lax.top_k(jnp.where(filled(state), rank, -jnp.inf), num)
    return Chosen(index, state.birth[index], rank > -jnp.inf)


def _window(state: ReplayState, index: Array, num_steps: int, *, num_envs: int) -> tuple[Array, Array]:
    later = num_envs * jnp.arange(num_steps, dtype=jnp.int32)[:, None]
    slots = (index[None] + later) % state.birth.shape[0]
    # An empty slot has the birth of the very first transition, which follows none.
    return slots, state.birth[slots] == state.birth[index][None] + later.astype(jnp.uint32)


def _probs(state: ReplayState, *, options: ReplayConfig) -> Array:
    return all_densities(state, options, all_leaves(state, options)) / jnp.maximum(state.size, 1)


def _still(state: ReplayState, index: Array, birth: Array) -> Array:
    """Return the slots that hold a transition of that birth; one past the end for the others."""
    capacity = state.birth.shape[0]
    return jnp.where((state.birth[index] == birth) & (index < state.size), index, capacity)


def _take(tree: Any, index: Array, axis: int) -> Any:
    return jax.tree.map(lambda leaf: leaf.take(index, axis=axis), tree)
