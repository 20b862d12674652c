"""Transitions of a replay buffer, of a checkpoint or a file: start states of episodes, or data to learn from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from hmx.algos.gradients.buckets import Bools, Floats, Host, Ints, merge_equal, sample_std
from hmx.algos.types import Carry, RolloutState
from hmx.errors import HmxError
from hmx.types import Array, Key


class Stored(NamedTuple):
    """The filled slots of a buffer; arrays are on the host, with a row per slot, `[N]`."""

    name: str  # for messages
    num_envs: int  # distance in `birth` between a transition and its successor
    num_added: int
    birth: Host  # uint32
    items: Any  # `Experience`, [N, ...] or longer; None for start states
    at: Callable[[Ints], RolloutState] | None = None  # environments before the steps of slots, for start states
    td_errors: Floats | None = None
    scores: Floats | None = None
    scored: Bools | None = None
    probs: Floats | None = None  # of being drawn

    @property
    def size(self) -> int:
        """Number of transitions."""
        return len(self.birth)


def drawn(stored: Stored, number: int, seed: list[int]) -> Ints:
    """Draw slots uniformly, without replacement; refuse more than exist (exit code 2)."""
    if number > stored.size:
        what = f"cannot draw {number:,} transitions: {stored.name} holds {stored.size:,}"
        raise HmxError(what, "fewer --groups (times --per-group with --replay), or a fuller buffer")
    slots: Ints = np.random.default_rng(seed).permutation(stored.size)[:number]
    return slots


def start_at(stored: Stored, num_groups: int, per_group: int, carry: Carry, seed: list[int]) -> RolloutState:
    """Start `per_group` neighbouring copies of each of `num_groups` stored positions."""
    assert stored.at is not None
    return stored.at(np.repeat(drawn(stored, num_groups, seed), per_group))._replace(carry=carry)


def seed_of(key: Key) -> list[int]:
    """Return a seed for NumPy from a key, which is not consumed."""
    return [int(n) for n in np.asarray(jax.random.key_data(key)).reshape(-1)]


def episodes(stored: Stored) -> tuple[Floats, Floats]:
    """Rebuild episodes from the order in which transitions were added: each follows the one `num_envs` before it.

    Returns:
        The undiscounted return of the episode of every transition, `[N]`, and the standard deviation of the returns of
        all stored episodes that start from the same observation, `[N]`; NaN if the buffer does not hold all of it.
    """
    items, size, envs = stored.items, stored.size, stored.num_envs
    reward = np.asarray(items.reward_tp1[:size], np.float64)
    ended = np.asarray(items.agent_done_tp1[:size]).all(-1) | np.asarray(items.truncated_tp1[:size])
    # in uint32, which wraps around as births do
    age = (np.uint32(stored.num_added % 2**32) - stored.birth).astype(np.int64)
    since = age.max() - age
    order = np.lexsort((since // envs, since % envs))
    env, step, over = (since % envs)[order], (since // envs)[order], ended[order]
    follows = (env[1:] == env[:-1]) & (step[1:] == step[:-1] + 1)
    begins = np.concatenate([[True], ~follows | over[:-1]])
    # a buffer that has not overwritten anything yet holds the very first steps
    first_of_all = (step == 0) if stored.num_added == size else np.zeros(size, bool)
    sure = np.concatenate([[False], follows & over[:-1]]) | first_of_all
    number = np.cumsum(begins) - 1
    heads = np.flatnonzero(begins)
    tails = np.concatenate([heads[1:], [size]]) - 1
    whole = sure[heads] & over[tails]
    ret = np.where(whole, np.bincount(number, reward[order]), np.nan)
    std = _start_std(items.obs_t, order[heads], ret)
    place = np.argsort(order)
    return ret[number][place], std[number][place]


def _start_std(obs: Array, heads: Host, ret: Floats) -> Floats:
    """Return the standard deviation over all whole episodes from the same observation, for each episode."""
    begin = np.asarray(obs[heads]).reshape(len(heads), -1)
    _, same = np.unique(begin, axis=0, return_inverse=True)
    same = same.reshape(-1)
    found = [sample_std(ret[same == start][None]) for start in range(same.max() + 1)]
    std, rounding = (np.concatenate(values) for values in zip(*found, strict=True))
    return np.where(np.isnan(ret), np.nan, merge_equal(std, rounding)[same])
