"""Gradients of every loss component for every group: one forward pass, and one backward pass per component."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from hmx.algos.gradients.buckets import Host, Ints
from hmx.algos.types import Params
from hmx.types import Array

Tree = Any  # a pytree of arrays
GroupLosses = Callable[..., tuple[Array, Tree]]  # (params, group, *rest) -> (losses summed over its steps [C], aux)
GroupGrads = Callable[..., tuple[Array, Array, Tree]]  # (params, groups, *rest) -> (losses [G, C], [G, C, P], aux)


class Layer(NamedTuple):
    """A module of a network, and the position of its parameters in a flat gradient."""

    name: str
    parts: tuple[tuple[int, int], ...]  # (first, one past the last)


class GroupGradients(NamedTuple):
    """Sums over the steps of each group, on the host."""

    losses: Host  # [G, C]
    grads: Host  # [G, C, P]
    aux: Tree  # auxiliary outputs of the losses; leaves [parts, ...]


def layers(params: Params) -> tuple[Layer, ...]:
    """Return the modules of a network that directly hold arrays, in the order of their first parameter."""
    places: dict[str, list[tuple[int, int]]] = {}
    end = 0
    for path, leaf in jax.tree_util.tree_flatten_with_path(params)[0]:
        name = jax.tree_util.keystr(path[:-1], simple=True, separator="/")
        start, end = end, end + leaf.size
        places.setdefault(name, []).append((start, end))
    return tuple(Layer(name, tuple(parts)) for name, parts in places.items())


def flat(tree: Params) -> Float[Array, " P"]:
    """Flatten all parameters (or their gradients) to one vector `[P]`, in the order of `layers`."""
    return jnp.concatenate([leaf.reshape(-1) for leaf in jax.tree.leaves(tree)])


def make_group_gradients(sums: GroupLosses) -> GroupGrads:
    """Build the jitted function that returns losses and gradients of several groups.

    Nothing is donated, and the parameters are only read.
    """

    def one(params: Params, group: Tree, *rest: Tree) -> tuple[Array, Array, Tree]:
        losses, pull, aux = jax.vjp(lambda p: sums(p, group, *rest), params, has_aux=True)
        units = jnp.eye(losses.shape[0], dtype=losses.dtype)
        # A loop of pulls needs half the memory of a batched one.
        rows = [flat(pull(unit)[0]) for unit in units]
        return losses, jnp.stack(rows), aux

    @jax.jit
    def several(params: Params, groups: Tree, *rest: Tree) -> tuple[Array, Array, Tree]:
        found: tuple[Array, Array, Tree] = jax.vmap(lambda group: one(params, group, *rest))(groups)
        return found

    return several


@jax.jit
def _chosen(groups: Tree, index: Int[Array, " chunk"]) -> Tree:
    return jax.tree.map(lambda leaf: leaf[index], groups)


def gather(
    several: GroupGrads, params: Params, groups: Tree, *rest: Tree, chunk: int, owner: Int[Ints, " parts"] | None = None
) -> GroupGradients:
    """Compute the gradients of all groups, `chunk` groups at a time.

    Chunks have one size and share one compiled program; the last is padded with copies that are dropped. `groups` has
    leaves `[G, ...]`; or it has parts of groups, and `owner` the group of each, from 0 without a gap: the parts of a
    group are added up, except for `aux`.
    """
    num_parts = jax.tree.leaves(groups)[0].shape[0]
    owner = np.arange(num_parts) if owner is None else owner
    chunk = min(chunk, num_parts)
    num_groups = int(owner.max()) + 1
    losses: Any = None
    grads: Any = None
    aux: list[Tree] = []
    for first in range(0, num_parts, chunk):
        kept = min(chunk, num_parts - first)
        index = np.minimum(np.arange(first, first + chunk), num_parts - 1)
        part = _chosen(groups, index)
        found_losses, found_grads, found_aux = jax.device_get(several(params, part, *rest))
        if grads is None:
            losses = np.zeros((num_groups, *found_losses.shape[1:]), found_losses.dtype)
            grads = np.zeros((num_groups, *found_grads.shape[1:]), found_grads.dtype)
        for i in range(kept):
            losses[owner[first + i]] += found_losses[i]
            grads[owner[first + i]] += found_grads[i]
        aux.append(jax.tree.map(lambda leaf, kept=kept: leaf[:kept], found_aux))
    return GroupGradients(losses, grads, jax.tree.map(lambda *parts: np.concatenate(parts), *aux))
