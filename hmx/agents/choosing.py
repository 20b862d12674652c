"""One state or another, leaf by leaf."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from hmx.agents.types import TrainState
from hmx.types import Array


def choose(where: Array, new: TrainState, old: TrainState) -> TrainState:
    """`new` where it holds, else `old`; `where` is one flag, or one per seed."""

    def leaf(a: Array, b: Array) -> Array:
        # The old key has been used to make the new state, which then is thrown away: no reuse, but the checker
        # cannot know that.
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            data = leaf(jax.random.key_data(a), jax.random.key_data(b))
            key: Array = jax.random.wrap_key_data(data, impl=jax.random.key_impl(a))
            return key
        chosen: Array = jnp.where(where.reshape(where.shape + (1,) * (a.ndim - where.ndim)), a, b)
        return chosen

    return jax.tree.map(leaf, new, old)
