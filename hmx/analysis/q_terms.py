"""The TD loss of stored transitions, from the very terms that Q-learning minimises."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hmx.agents.q_learning import Learner, Parts, targets, td_losses
from hmx.agents.types import Params
from hmx.analysis.gradients import GroupGradients, gather, make_group_gradients
from hmx.analysis.probe import in_parts, padded, third
from hmx.analysis.spec import check_finite
from hmx.replay import Batch, Experience, ReplayState, make_replay
from hmx.types import Array

TD = "td"
COEFS = {TD: 1.0}
"""Q-learning's loss has one component: no entropy bonus, no KL term, no value head of its own."""

_BLOCK = 1024  # transitions whose targets are computed at once

Host = np.ndarray[Any, Any]


class Networks(NamedTuple):
    """What TD errors are made of."""

    params: Params
    target_params: Params


class Place(NamedTuple):
    """Some transitions of one group, and what they are to learn."""

    slots: Array  # [R] int
    target: Array  # [R]
    weight: Array  # [R]: that of replay
    real: Array  # [R] bool: whether it is one, or fills up


class Judged(NamedTuple):
    """What the networks say of transitions, `[n]`."""

    target: Host
    td_error: Host  # target less value


class Terms(NamedTuple):
    """Compiled: targets of transitions, and gradients of their losses."""

    judge: Callable[..., tuple[Array, Array]]
    gradients: Callable[..., Any]


def at(parts: Parts, num_envs: int) -> Parts:
    """The parts of the algorithm for a buffer to which `num_envs` transitions were added at a time."""
    return parts._replace(replay=make_replay(num_envs, num_envs, parts.replay_options))


def make_terms(parts: Parts, replayed: bool) -> Terms:
    """Compiles nothing yet.

    Args:
        parts: of the algorithm, see `at`.
        replayed: whether the losses are wanted under the weights of replay too.
    """

    def judge(networks: Networks, history: ReplayState, index: Array) -> tuple[Array, Array]:
        nothing: Any = ()
        learner = Learner(networks.params, networks.target_params, nothing, nothing, jnp.int32(0))
        items = _take(history.items, index)
        ones = jnp.ones(index.shape, jnp.float32)
        batch = Batch(index, history.birth[index], items, ones, ones)
        target = targets(parts, learner, history, batch)
        return target, target - td_losses(parts, networks.params, items, target)[1]

    return Terms(jax.jit(judge), make_group_gradients(td_sums(parts, replayed)))


def td_sums(parts: Parts, replayed: bool) -> Callable[[Params, Place, Experience], tuple[Array, Any]]:
    """`(params, place, all transitions) -> (losses summed over the place's transitions [C], nothing)`."""

    def sums(params: Params, place: Place, items: Experience) -> tuple[Array, Any]:
        losses, _ = td_losses(parts, params, _take(items, place.slots), jax.lax.stop_gradient(place.target))
        losses = jnp.where(place.real, losses, 0.0)
        return jnp.stack([losses.sum(), *([(place.weight * losses).sum()] if replayed else [])]), ()

    return sums


def judged(terms: Terms, networks: Networks, history: ReplayState, index: Host) -> Judged:
    """Targets and TD errors of some slots.

    Raises:
        HmxError: one is not finite (exit code 4).
    """
    found = Judged(*in_blocks(partial(terms.judge, networks, history), index))
    check_finite(found.td_error)
    return found


def in_blocks(function: Callable[[Array], Any], index: Host) -> tuple[Host, ...]:
    """`function` of all of `index`, a block at a time; blocks are filled up to one size."""
    found = []
    for first in range(0, len(index), _BLOCK):
        part = index[first : first + _BLOCK]
        block = np.concatenate([part, np.repeat(part[:1], _BLOCK - len(part))])
        found.append([np.asarray(leaf)[: len(part)] for leaf in function(jnp.asarray(block))])
    return tuple(np.concatenate(leaves) for leaves in zip(*found, strict=True))


def group_gradients(
    terms: Terms,
    params: Params,
    items: Experience,
    groups: Sequence[Host],
    target: Host,
    weight: Host,
    chunk: int,
    width: int = 0,
) -> GroupGradients:
    """The gradients of all groups.

    Args:
        terms: of `make_terms`.
        params: of the network.
        items: all transitions, `[N, ...]`.
        groups: slots of each.
        target: float32 `[N]`, of no meaning for slots in no group.
        weight: float32 `[N]`, those of replay.
        chunk: parts of groups at once.
        width: transitions of a part; 0 takes what suits these groups.

    Raises:
        HmxError: a gradient is not finite (exit code 4).
    """
    width = width or third(sum(map(len, groups)), len(groups))
    index, real, owner = in_parts(*padded(groups), width)
    place = Place(*(jnp.asarray(leaf) for leaf in (index, target[index], weight[index], real)))
    found = gather(terms.gradients, params, place, items, chunk=chunk, owner=owner)
    check_finite(found.grads)
    return found


def _take(items: Any, index: Array) -> Any:
    return jax.tree.map(lambda leaf: leaf[index], items)
