"""The replay buffer: a ring of transitions with environment states, sampled by TD error and consequence score."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from hmx.config.learning import ReplayConfig, Selection
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
from hmx.rl.priorities import draw_sequences, importance_weights
from hmx.types import Array, Key


@dataclass(frozen=True)
class Replay:
    """A prioritised buffer; its methods are pure functions of a state, to compile, scan and vmap."""

    capacity: int  # slots; a multiple of `num_envs`, so that no batch is split at the end of the ring
    num_envs: int  # transitions per `add`
    options: ReplayConfig
    state_axis: int = 0  # axis of the batch in the leaves of environment states, 0 or -1

    def __post_init__(self) -> None:
        if self.capacity < self.num_envs or self.capacity % self.num_envs:
            fitting = max(self.capacity // self.num_envs, 1) * self.num_envs
            words = f"cannot make a replay buffer of {self.capacity:,} transitions: not a multiple of"
            raise HmxError(f"{words} {self.num_envs:,} environments", f"replay.capacity={fitting}")

    def init(self, items: Any, env_states: Any) -> ReplayState:
        """Make an empty buffer for batches like these."""
        nowhere = jnp.zeros(self.capacity, jnp.int32)
        zero, one = jnp.zeros((), jnp.int32), jnp.ones((), jnp.float32)
        trees = 2 if self.options.mixing == "additive" else 1  # by TD error, and by score
        return ReplayState(
            items=_take(items, nowhere, 0),
            env_states=_take(env_states, nowhere, self.state_axis),
            td_errors=jnp.zeros(self.capacity),
            consequence_scores=jnp.zeros(self.capacity),
            scored=jnp.zeros(self.capacity, bool),
            scored_at=jnp.zeros(self.capacity, jnp.uint32),
            birth=jnp.zeros(self.capacity, jnp.uint32),
            num_added=jnp.zeros((), jnp.uint32),
            position=zero,
            size=zero,
            num_scored=zero,
            td_max=jnp.zeros(()),
            score_scale=one,
            neutral=one,
            alphas=jnp.array(priority.exponents(self.options), jnp.float32),
            num_nonfinite=zero,
            forest=forest.build(jnp.zeros((trees, self.capacity))),
        )

    def add(self, state: ReplayState, items: Any, env_states: Any) -> ReplayState:
        """Add a batch of transitions in place of the oldest ones, with their priorities."""
        capacity, num = state.birth.shape[0], jax.tree.leaves(items)[0].shape[0]
        if num != self.num_envs:
            raise ValueError(f"{num} transitions added to a buffer made for {self.num_envs} at a time")
        index = state.position + jnp.arange(num, dtype=jnp.int32)
        td_error = jnp.full(num, jnp.where(state.td_max > 0.0, state.td_max, 1.0))
        unscored = jnp.zeros(num, bool)
        leaves = leaves_of(state, self.options, td_error, jnp.zeros(num), unscored)
        trees = state.forest
        for tree in range(leaves.shape[0]):
            trees = forest.update(trees, tree, index, leaves[tree])
        overwritten = jnp.where(state.size == capacity, state.scored[index], False).sum(dtype=jnp.int32)

        def write(buffer: Array, new: Array) -> Array:
            return jax.lax.dynamic_update_slice_in_dim(buffer, new, state.position, 0)

        return self.put(state, state.position, (items, env_states))._replace(
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

    def env_states(self, state: ReplayState, index: Array) -> Any:
        """Return the environment states before these transitions."""
        return _take(state.env_states, index, self.state_axis)

    def at(self, state: ReplayState, start: Array) -> tuple[Any, Any]:
        """Read the transitions and environment states of `num_envs` slots from `start` on."""

        def read(buffer: Array, axis: int) -> Array:
            return jax.lax.dynamic_slice_in_dim(buffer, start, self.num_envs, axis % buffer.ndim)

        items = jax.tree.map(partial(read, axis=0), state.items)
        return items, jax.tree.map(partial(read, axis=self.state_axis), state.env_states)

    def put(self, state: ReplayState, start: Array, stored: tuple[Any, Any]) -> ReplayState:
        """Write what `at` reads; the priorities stay."""

        def put(buffer: Array, new: Array, axis: int) -> Array:
            return jax.lax.dynamic_update_slice_in_dim(buffer, new, start, axis % buffer.ndim)

        return state._replace(
            items=jax.tree.map(partial(put, axis=0), state.items, stored[0]),
            env_states=jax.tree.map(partial(put, axis=self.state_axis), state.env_states, stored[1]),
        )

    def sample(self, state: ReplayState, key: Key, batch_size: int, is_beta: float | Array) -> ReplayBatch:
        """Sample a batch, with importance weights `(N p)^-is_beta`.

        With `replacement` the buffer must not be empty; without, it must hold at least `batch_size` transitions.
        """
        draw = self._draw if self.options.replacement else self._draw_distinct
        index = draw(state, key, batch_size)
        totals = forest.totals(state.forest)
        weights = forest.leaves_at(state.forest, index)
        densities = priority.densities(self.options, weights, totals, state.scored[index], state.size, state.num_scored)
        kind = "raw" if self.options.is_norm == "bound" else self.options.is_norm
        is_weights = importance_weights(densities, 1, is_beta, kind)
        if self.options.is_norm == "bound":
            counts = state.size, state.num_scored
            lowest = priority.density_bound(self.options, state.alphas, totals, *counts, state.neutral)
            is_weights = is_weights / importance_weights(lowest, 1, is_beta, "raw")
        return ReplayBatch(index, state.birth[index], _take(state.items, index, 0), densities / state.size, is_weights)

    def _draw(self, state: ReplayState, key: Key, batch_size: int) -> Array:
        """Sample slots with replacement."""
        k_draw, k_source, k_slot = jax.random.split(key, 3)
        from_scores, stratum, num_strata = self._sources(k_source, batch_size)
        index = forest.draw(state.forest, k_draw, from_scores.astype(jnp.int32), stratum, num_strata)
        if self.options.mixing != "additive":
            return index
        # p_C is 1/N for slots without a score: take a random slot, but sample among the scored ones if it has a score.
        slot = jax.random.randint(k_slot, (batch_size,), 0, jnp.maximum(state.size, 1))
        return jnp.where(from_scores & ~state.scored[slot], slot, index)

    def _sources(self, key: Key, batch_size: int) -> tuple[Array, Array, Array]:
        """Return which entries of a batch are sampled by score, and the stratum and number of strata of each.

        With replacement, a share `mu` of the batch is sampled by score, in strata. Samples that are to become distinct
        must be independent: each is sampled by score with probability `mu`.
        """
        entry = jnp.arange(batch_size, dtype=jnp.int32)
        mu = self.options.mu if self.options.mixing == "additive" else 0.0
        if not self.options.replacement:
            return jax.random.uniform(key, (batch_size,)) < mu, jnp.zeros_like(entry), jnp.ones_like(entry)
        whole, rest = divmod(mu * batch_size, 1.0)
        by_score = int(whole) + (jax.random.uniform(key) < rest).astype(jnp.int32)
        from_scores = entry < by_score
        stratum = jnp.where(from_scores, entry, entry - by_score)
        return from_scores, stratum, jnp.where(from_scores, by_score, batch_size - by_score)

    def _draw_distinct(self, state: ReplayState, key: Key, batch_size: int) -> Array:
        """Sample slots without replacement: each in proportion to `probs` among the slots that remain.

        Independent samples have this distribution if repeated ones are skipped. If there are too few distinct ones
        among twice the batch, the rest is sampled by Gumbel noise over the remaining slots, in O(N).
        """
        key, k_draw = jax.random.split(key)
        capacity, entry = state.birth.shape[0], jnp.arange(batch_size, dtype=jnp.int32)

        def fill(now: tuple[Array, Array, Key]) -> tuple[Array, Array, Key]:
            drawn, count, key = now
            key, k_rest = jax.random.split(key)
            done = jnp.where(entry < count, drawn, capacity)
            rest = draw_sequences(k_rest, self.probs(state).at[done].set(0.0, mode="drop"), batch_size)
            return jnp.where(entry < count, drawn, rest[jnp.maximum(entry - count, 0)]), jnp.int32(batch_size), key

        # A loop, not a condition: over several seeds, a condition would compute both sides in every step.
        first = _distinct(self._draw(state, k_draw, 2 * batch_size), batch_size)
        return jax.lax.while_loop(lambda now: now[1] < batch_size, fill, (*first, key))[0]

    def set_priority(self, state: ReplayState, index: Array, birth: Array, td_error: Array) -> ReplayState:
        """Set TD errors where the slot still holds the transition of that birth."""
        errors, num_nonfinite = priority.magnitude(td_error)
        td_errors = state.td_errors.at[_still(state, index, birth)].set(errors, mode="drop")
        state = state._replace(
            td_errors=td_errors,
            td_max=jnp.maximum(state.td_max, errors.max()),
            num_nonfinite=state.num_nonfinite + num_nonfinite,
        )
        # Read the slots again: a transition sampled twice gets one leaf, and a replaced one keeps the leaf of its
        # successor.
        leaves = leaves_of(state, self.options, td_errors[index], state.consequence_scores[index], state.scored[index])
        return state._replace(forest=forest.update(state.forest, 0, index, leaves[0]))

    def set_scores(self, state: ReplayState, index: Array, birth: Array, scores: Array) -> ReplayState:
        """Set consequence scores where the slot still holds the transition of that birth; O(N).

        The weight of slots without a score changes with them. Exponents are fitted again if there is a `target_ess`.
        """
        values, num_nonfinite = priority.magnitude(scores)
        still = _still(state, index, birth)
        state = state._replace(
            consequence_scores=state.consequence_scores.at[still].set(values, mode="drop"),
            scored=state.scored.at[still].set(True, mode="drop"),
            scored_at=state.scored_at.at[still].set(state.num_added, mode="drop"),
            num_nonfinite=state.num_nonfinite + num_nonfinite,
        )
        state = state._replace(num_scored=scored_slots(state).sum(dtype=jnp.int32))
        return self.retune(state)

    def retune(self, state: ReplayState) -> ReplayState:
        """Fit exponents without new scores, for replay by TD error alone."""
        if self.options.target_ess > 0.0:
            state = fitted(with_scale(state, self.options), self.options)
        return rebuilt(state, self.options)

    def choose(self, state: ReplayState, key: Key, num: int, selection: Selection) -> Chosen:
        """Choose transitions to score, without replacement.

        `stale`: those without a score in random order, then the oldest scores; `uniform`; or `replay`, in proportion to
        `probs`.
        """
        capacity = state.birth.shape[0]
        if num > capacity:
            words = f"cannot score {num:,} transitions at once: the buffer holds {capacity:,}"
            raise HmxError(words, "score fewer")
        if selection == "replay":
            noise = jax.random.gumbel(key, (capacity,), mode="high")
            rank = jnp.log(self.probs(state)) + noise
        else:
            rank = jax.random.uniform(key, (capacity,))
        if selection == "stale":
            age = (state.num_added - state.scored_at).astype(jnp.float32)
            rank = jnp.where(state.scored, -1.0 / (1.0 + age), rank)
        rank, index = jax.lax.top_k(jnp.where(filled(state), rank, -jnp.inf), num)
        return Chosen(index, state.birth[index], rank > -jnp.inf)

    def window(self, state: ReplayState, index: Array, num_steps: int) -> tuple[Array, Array]:
        """Return slots `[num_steps, B]` of transitions and their successors, and the slots that still hold them."""
        later = self.num_envs * jnp.arange(num_steps, dtype=jnp.int32)[:, None]
        slots = (index[None] + later) % state.birth.shape[0]
        # An empty slot has the birth of the first transition, which has no predecessor.
        return slots, state.birth[slots] == state.birth[index][None] + later.astype(jnp.uint32)

    def probs(self, state: ReplayState) -> Array:
        """Compute the sampling probability of every slot, `[N]`; O(N)."""
        return all_densities(state, self.options, all_leaves(state, self.options)) / jnp.maximum(state.size, 1)


def _still(state: ReplayState, index: Array, birth: Array) -> Array:
    """Return the slots that hold a transition of that birth; one past the end for the others."""
    capacity = state.birth.shape[0]
    return jnp.where((state.birth[index] == birth) & (index < state.size), index, capacity)


def _distinct(index: Array, size: int) -> tuple[Array, Array]:
    """Return the first `size` distinct values in their order, and the number of these that exist."""
    order = jnp.argsort(index, stable=True)
    ordered = index[order]
    is_first = jnp.concatenate([jnp.ones(1, bool), ordered[1:] != ordered[:-1]])
    is_first = jnp.zeros(index.shape, bool).at[order].set(is_first)
    place = jnp.where(is_first, jnp.cumsum(is_first) - 1, size)
    return jnp.zeros(size, index.dtype).at[place].set(index, mode="drop"), is_first.sum(dtype=jnp.int32)


def _take(tree: Any, index: Array, axis: int) -> Any:
    return jax.tree.map(lambda leaf: leaf.take(index, axis=axis), tree)
