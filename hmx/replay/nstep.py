"""Returns over several steps."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from hmx.types import Array


class NStep(NamedTuple):
    """The target is `ret + discount * value(what was seen after step `last`)`."""

    ret: Array  # [B, ...] float32: discounted rewards
    discount: Array  # [B, ...] float32: 0 where the episode ended by its rules
    last: Array  # int32 [B, ...]: the last step counted, from 0


def n_step(reward: Array, terminated: Array, truncated: Array, there: Array, gamma: float | Array) -> NStep:
    """Discounted rewards of up to n steps, for a target that bootstraps from the state after the last of them.

    The return stops with the episode. One that was cut by the step limit goes on in value: it bootstraps from the
    state it was cut in, which is why that is to be looked up at `last`. Where fewer than n steps are there yet, those
    that are count.

    Args:
        reward: `[n, B, ...]`, of step 1 to n.
        terminated: `[n, B, ...]`, the episode ended with this step.
        truncated: `[n, B, ...]`, it was cut after this step.
        there: `[n, B, ...]`, whether the step is known; the first is.
        gamma: discount per step.
    """
    ended = terminated | truncated
    before = jnp.concatenate([jnp.zeros_like(ended[:1]), ended[:-1]])
    unknown = ~there
    counts = jnp.cumsum((before | unknown).astype(jnp.int32), 0) == 0
    steps = jnp.arange(reward.shape[0], dtype=jnp.float32).reshape((-1,) + (1,) * (reward.ndim - 1))
    discounts = jnp.power(jnp.float32(gamma), steps)
    ret = jnp.where(counts, discounts * reward, 0.0).sum(0)
    num = counts.sum(0, dtype=jnp.int32)
    last = jnp.maximum(num - 1, 0)
    over = jnp.take_along_axis(terminated, last[None], 0)[0]
    return NStep(ret, jnp.where(over, 0.0, jnp.power(jnp.float32(gamma), num.astype(jnp.float32))), last)
