"""Transitions of a replay buffer, wherever it comes from: as states to start from, and as what is learned from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hmx.agents.collector import Actors
from hmx.agents.metrics import Episode
from hmx.analysis.buckets import Floats, reward_std
from hmx.errors import HmxError
from hmx.types import Array, Key

Host = np.ndarray[Any, Any]


class Position(NamedTuple):
    """Environments as their agents found them before a stored step."""

    env_state: Any  # of E environments
    obs: Array  # [E, A, *obs_shape]
    legal: Array  # [E, A, num_actions]
    agent_done: Array  # [E, A] bool: the agent's part of the episode was over


class Stored(NamedTuple):
    """The filled slots of a buffer; arrays are on the host and lead with the slots, `[N]`."""

    name: str  # for messages
    num_envs: int  # a transition's successor was born so much later
    num_added: int
    birth: Host  # uint32
    items: Any  # `Experience`, [N, ...] or longer; None where a learner could not learn from it
    at: Callable[[Host], Position] | None = None  # positions of slots; None where nothing is to be played
    td_errors: Any = None
    scores: Any = None
    scored: Any = None
    probs: Any = None  # of being drawn

    @property
    def size(self) -> int:
        """Transitions."""
        return len(self.birth)


def drawn(stored: Stored, number: int, seed: list[int]) -> Host:
    """Slots without replacement, all alike.

    Raises:
        HmxError: there are not as many (exit code 2).
    """
    if number > stored.size:
        said = f"{stored.name} holds {stored.size:,} transitions, and {number:,} are asked for"
        raise HmxError(said, "fewer --groups (times --per-group with --replay), or a fuller buffer")
    slots: Host = np.random.default_rng(seed).permutation(stored.size)[:number]
    return slots


def start_at(stored: Stored, num_groups: int, per_group: int, carry: Any, seed: list[int]) -> Actors:
    """`per_group` copies of each of `num_groups` stored positions, which next to each other make a group."""
    assert stored.at is not None
    position = stored.at(np.repeat(drawn(stored, num_groups, seed), per_group))
    num_envs = num_groups * per_group
    return Actors(
        position.env_state,
        position.obs,
        position.legal,
        Episode.start(num_envs),
        carry,
        reset=jnp.ones(num_envs, bool),
        agent_done=position.agent_done,
    )


def seed_of(key: Key) -> list[int]:
    """What NumPy's generators take, from a key that is not used up."""
    return [int(n) for n in np.asarray(jax.random.key_data(key)).reshape(-1)]


class Episodes(NamedTuple):
    """What is known of the episode of every transition; NaN where the buffer does not hold all of it."""

    ret: Floats  # [N] undiscounted return
    length: Floats  # [N]
    start_std: Floats  # [N]: deviation of the returns of all stored episodes that begin with the same observation


def episodes(stored: Stored) -> Episodes:
    """Rebuilds episodes from when transitions were added: each follows the one born `num_envs` before it."""
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
    # a buffer that has lost nothing yet holds the very first steps
    first_of_all = (step == 0) if stored.num_added == size else np.zeros(size, bool)
    sure = np.concatenate([[False], follows & over[:-1]]) | first_of_all
    number = np.cumsum(begins) - 1
    heads = np.flatnonzero(begins)
    tails = np.concatenate([heads[1:], [size]]) - 1
    whole = sure[heads] & over[tails]
    ret = np.where(whole, np.bincount(number, reward[order]), np.nan)
    length = np.where(whole, tails - heads + 1.0, np.nan)
    std = _start_std(items.obs_t, order[heads], ret)
    found = [np.empty(size) for _ in range(3)]
    for target, values in zip(found, (ret, length, std), strict=True):
        target[order] = values[number]
    return Episodes(*found)


def _start_std(obs: Array, heads: Host, ret: Floats) -> Floats:
    """Of each episode, `[episodes]`: of all that begin alike and are whole."""
    begin = np.asarray(obs[heads]).reshape(len(heads), -1)
    _, same = np.unique(begin, axis=0, return_inverse=True)
    std = np.full(len(heads), np.nan)
    for start in np.unique(same):
        members = same.reshape(-1) == start
        std[members] = reward_std(ret[members][None])[0]
    return np.where(np.isnan(ret), np.nan, std)
