"""Recompute the TD errors of stored transitions with the network that plays on."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from hmx.reports.consequence.source import Scene
from hmx.rl import distributions
from hmx.runs.buffers import ACTION, LEGAL, OBS, Host
from hmx.runs.signals import interruptible
from hmx.types import Array

_PART = 256
_REWARD, _DONE, _ALIVE, _OBS_NEXT, _LEGAL_NEXT = "reward_tp1", "agent_done_tp1", "alive_t", "obs_tp1", "legal_tp1"


def fresh_errors(scene: Scene, slots: Host) -> Host | None:
    """Compute the one-step `|r + gamma max Q(s', .) - Q(s, a)|`, summed over agents; None if it is not known."""
    items = scene.buffer.items
    if not scene.agent.network.are_values or not _complete(items, len(scene.buffer.birth)):
        return None
    program = jax.jit(partial(_errors, scene))
    found = []
    for start in range(0, len(slots), _PART):
        part = slots[start : start + _PART]
        padded = np.concatenate([part, np.repeat(part[:1], _PART - len(part))])
        names = (OBS, LEGAL, ACTION, _REWARD, _DONE, _ALIVE, _OBS_NEXT, _LEGAL_NEXT)
        given = {name: jnp.asarray(items[name][padded]) for name in names}
        found.append(np.asarray(interruptible(partial(program, scene.agent.params, given)))[: len(part)])
    return np.concatenate(found)


def _complete(items: object, size: int) -> bool:
    """Return whether a buffer, which may come from a stranger, has the results of its steps."""
    if not isinstance(items, dict) or any(n not in items for n in (_REWARD, _DONE, _ALIVE, _OBS_NEXT, _LEGAL_NEXT)):
        return False
    agents = items[ACTION].shape
    same = {_OBS_NEXT: items[OBS], _LEGAL_NEXT: items[LEGAL]}
    return (
        items[_REWARD].shape == (size,)
        and all(items[name].shape == agents and items[name].dtype == bool for name in (_DONE, _ALIVE))
        and all((items[n].shape, items[n].dtype) == (like.shape, like.dtype) for n, like in same.items())
    )


def _errors(scene: Scene, params: object, items: dict[str, Array]) -> Array:
    values = scene.agent.network.outputs(params, items[OBS])
    after = scene.agent.network.outputs(params, items[_OBS_NEXT])
    taken = jnp.take_along_axis(values, items[ACTION][..., None], -1)[..., 0]
    best = jnp.take_along_axis(after, distributions.mode(after, items[_LEGAL_NEXT])[..., None], -1)[..., 0]
    following = jnp.where(items[_DONE], 0.0, best).sum(-1)
    return jnp.abs(
        items[_REWARD] + scene.agent.cfg.algo.gamma * following - jnp.where(items[_ALIVE], taken, 0.0).sum(-1)
    )
