"""Selecting between two training states, leaf by leaf."""

from __future__ import annotations

from typing import TypeVar

import jax
import jax.numpy as jnp

from hmx.types import Array

Tree = TypeVar("Tree")


def tree_where(where: Array, new: Tree, old: Tree) -> Tree:
    """Return `new` where the flag holds, else `old`; `where` is one flag, or one per seed."""

    def leaf(a: Array, b: Array) -> Array:
        # The old key has been used to make the new state, which is then discarded: no reuse, but the checker cannot
        # know that.
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            data = leaf(jax.random.key_data(a), jax.random.key_data(b))
            key: Array = jax.random.wrap_key_data(data, impl=jax.random.key_impl(a))
            return key
        chosen: Array = jnp.where(where.reshape(where.shape + (1,) * (a.ndim - where.ndim)), a, b)
        return chosen

    chosen: Tree = jax.tree.map(leaf, new, old)
    return chosen
