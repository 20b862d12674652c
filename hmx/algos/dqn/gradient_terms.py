"""The TD loss of stored transitions, from the same terms that Q-learning minimises."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from hmx.algos.dqn.learning import DqnComponents, Learner, targets, td_losses
from hmx.algos.gradients.buckets import Host, Ints
from hmx.algos.gradients.per_group import GroupGradients, GroupGrads, GroupLosses, Tree, gather, make_group_gradients
from hmx.algos.gradients.probe import in_parts, padded, third
from hmx.algos.gradients.results import check_finite
from hmx.algos.types import Params
from hmx.replay import Experience, Replay, ReplayBatch, ReplayState
from hmx.types import Array

TD = "td"
COEFS = {TD: 1.0}  # Q-learning's loss has one component: no entropy bonus, no KL term, no separate value head

_BLOCK = 1024  # transitions whose targets are computed at once


class GroupTransitions(NamedTuple):
    """Transitions of one group with their targets, of length R."""

    slots: Array
    target: Array
    weight: Array  # of replay
    real: Array  # False for padding


class TdTargets(NamedTuple):
    """Targets and TD errors of transitions, `[n]`."""

    target: Host
    td_error: Host  # target - value


class TdFunctions(NamedTuple):
    """Compiled functions: targets and TD errors of transitions, and gradients of their losses."""

    targets: Callable[[Params, Params, ReplayState, Array], tuple[Array, Array]]
    gradients: GroupGrads
    chunk: int  # groups whose gradients are computed at a time


def with_num_envs(parts: DqnComponents, num_envs: int) -> DqnComponents:
    """Return the parts of the algorithm for a buffer to which `num_envs` transitions are added at a time."""
    return parts._replace(replay=Replay(num_envs, num_envs, parts.cfg.replay, parts.env.spec.state_axis))


def make_td_functions(parts: DqnComponents, replayed: bool, chunk: int) -> TdFunctions:
    """Build the functions, which are compiled when they are first used.

    `replayed` adds losses with the weights of replay as a second component.
    """

    def td_targets(params: Params, target_params: Params, history: ReplayState, index: Array) -> tuple[Array, Array]:
        empty: Any = ()
        learner = Learner(params, target_params, empty, empty, jnp.int32(0))
        items = _take(history.items, index)
        ones = jnp.ones(index.shape, jnp.float32)
        batch = ReplayBatch(index, history.birth[index], items, ones, ones)
        target = targets(parts, learner, history, batch)
        return target, target - td_losses(parts, params, items, target)[1]

    return TdFunctions(jax.jit(td_targets), make_group_gradients(td_sums(parts, replayed)), chunk)


def td_sums(parts: DqnComponents, replayed: bool) -> GroupLosses:
    """Build `(params, GroupTransitions, all transitions) -> (losses summed over the group's transitions [C], ())`."""

    def sums(params: Params, group: GroupTransitions, items: Experience) -> tuple[Array, Tree]:
        losses, _ = td_losses(parts, params, _take(items, group.slots), jax.lax.stop_gradient(group.target))
        losses = jnp.where(group.real, losses, 0.0)
        return jnp.stack([losses.sum(), *([(group.weight * losses).sum()] if replayed else [])]), ()

    return sums


def td_targets_of(
    functions: TdFunctions, params: Params, target_params: Params, history: ReplayState, index: Int[Ints, " n"]
) -> TdTargets:
    """Compute targets and TD errors of some slots by a network and its target network."""
    found = TdTargets(*in_blocks(partial(functions.targets, params, target_params, history), index))
    check_finite(found.td_error)
    return found


def in_blocks(function: Callable[[Array], tuple[Array, ...]], index: Ints) -> tuple[Host, ...]:
    """Call `function` on all of `index`, a block at a time; blocks are padded to one size."""
    found = []
    for first in range(0, len(index), _BLOCK):
        part = index[first : first + _BLOCK]
        block = np.concatenate([part, np.repeat(part[:1], _BLOCK - len(part))])
        found.append([np.asarray(leaf)[: len(part)] for leaf in function(jax.device_put(block))])
    return tuple(np.concatenate(leaves) for leaves in zip(*found, strict=True))


def group_gradients(
    functions: TdFunctions,
    params: Params,
    items: Experience,
    groups: Sequence[Ints],
    target: Float[Host, " N"],
    weight: Float[Host, " N"],
    width: int = 0,
) -> GroupGradients:
    """Compute the gradients of all groups.

    `groups` are slots into `items` `[N, ...]`; `target` and `weight` (that of replay) are float32 `[N]`. A `width`, the
    transitions of a part, of 0 is chosen from the sizes of the groups.
    """
    width = width or third(sum(map(len, groups)), len(groups))
    index, real, owner = in_parts(*padded(groups), width)
    parts = GroupTransitions(*(jax.device_put(leaf) for leaf in (index, target[index], weight[index], real)))
    found = gather(functions.gradients, params, parts, items, chunk=functions.chunk, owner=owner)
    check_finite(found.grads)
    return found


def _take(items: Experience, index: Array | Ints) -> Experience:
    taken: Experience = jax.tree.map(lambda leaf: leaf[index], items)
    return taken
