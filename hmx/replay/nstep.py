"""Returns over several steps."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


class NStep(NamedTuple):
    """The target is `ret + discount * value(observation after step `last`)`."""

    ret: Float[Array, "*B"]  # discounted rewards
    discount: Float[Array, "*B"]  # 0 where the episode terminated
    last: Int[Array, "*B"]  # the last step counted, from 0


def n_step(
    reward: Float[Array, " n *B"],
    terminated: Bool[Array, " n *B"],
    truncated: Bool[Array, " n *B"],
    there: Bool[Array, " n *B"],
    gamma: float | Float[Array, ""],
) -> NStep:
    """Sum discounted rewards of up to n steps, for a target that bootstraps from the state after the last of them.

    The return stops with the episode. A truncated episode bootstraps from the state it was truncated in, which is to
    be looked up at `last`. If fewer than n steps are known, those count.

    Args:
        reward: of step 1 to n.
        terminated: whether the episode terminated with this step.
        truncated: whether it was truncated after this step.
        there: whether the step is known; the first is.
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
