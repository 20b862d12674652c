"""The gradient of every loss component for every group: one forward pass, and one backward pass per component."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hmx.types import Array

Params = Any
Groups = Any  # a pytree whose leaves are [G, ...]
Sums = Callable[[Params, Any], tuple[Array, Any]]  # (params, one group) -> (losses summed over its steps [C], more)


class Layer(NamedTuple):
    """One module of a network, and where its parameters lie in a flat gradient."""

    name: str
    parts: tuple[tuple[int, int], ...]  # (first, one past the last)


class GroupGradients(NamedTuple):
    """Sums over the steps of each group, on the host; `more` is whatever the losses return besides."""

    losses: np.ndarray[Any, Any]  # [G, C]
    grads: np.ndarray[Any, Any]  # [G, C, P]
    more: Any  # leaves [parts, ...]


def layers(params: Params) -> tuple[Layer, ...]:
    """The modules of a network in the order of their first parameter; a module is what directly holds arrays."""
    places: dict[str, list[tuple[int, int]]] = {}
    end = 0
    for path, leaf in jax.tree_util.tree_flatten_with_path(params)[0]:
        name = jax.tree_util.keystr(path[:-1], simple=True, separator="/")
        start, end = end, end + leaf.size
        places.setdefault(name, []).append((start, end))
    return tuple(Layer(name, tuple(parts)) for name, parts in places.items())


def flat(tree: Params) -> Array:
    """All parameters (or their gradients) as one vector `[P]`, in the order of `layers`."""
    return jnp.concatenate([leaf.reshape(-1) for leaf in jax.tree.leaves(tree)])


def make_group_gradients(
    sums: Callable[..., tuple[Array, Any]], live: Sequence[bool] | None = None
) -> Callable[..., tuple[Array, Array, Any]]:
    """A jitted `(params, groups, *rest) -> (losses [G, C], gradients [G, C, P], more)`.

    Nothing is donated, and the parameters are only read.

    Args:
        sums: `(params, one group, *rest) -> (losses summed over the group's steps [C], more)`.
        live: which components may have a gradient at all; the others are spared their backward pass.
    """

    def one(params: Params, group: Any, *rest: Any) -> tuple[Array, Array, Any]:
        losses, pull, more = jax.vjp(lambda p: sums(p, group, *rest), params, has_aux=True)
        units = jnp.eye(losses.shape[0], dtype=losses.dtype)
        nothing = jnp.zeros_like(flat(params))
        # A loop of pulls needs half the memory of a batched one.
        rows = [flat(pull(unit)[0]) if live is None or live[c] else nothing for c, unit in enumerate(units)]
        return losses, jnp.stack(rows), more

    @jax.jit
    def several(params: Params, groups: Groups, *rest: Any) -> tuple[Array, Array, Any]:
        found: tuple[Array, Array, Any] = jax.vmap(lambda group: one(params, group, *rest))(groups)
        return found

    return several


def gather(
    several: Callable[..., tuple[Array, Array, Any]],
    params: Params,
    groups: Groups,
    *rest: Any,
    chunk: int = 8,
    owner: np.ndarray[Any, Any] | None = None,
) -> GroupGradients:
    """The gradients of all groups, `chunk` groups at a time.

    Equal chunks share one compiled program; the last is filled up with copies that are dropped again.

    Args:
        several: of `make_group_gradients`.
        params: differentiated with respect to.
        groups: leaves `[G, ...]`, or parts of groups.
        rest: further arguments of the losses.
        chunk: groups in flight, which the memory in use is proportional to.
        owner: the group that each part belongs to, from 0 without a gap; the parts of a group are added up, but for
            `more`, which stays as it is. None where every group is whole.
    """
    num_parts = jax.tree.leaves(groups)[0].shape[0]
    owner = np.arange(num_parts) if owner is None else owner
    chunk = min(chunk, num_parts)
    num_groups = int(owner.max()) + 1
    losses: Any = None
    grads: Any = None
    more = []
    for first in range(0, num_parts, chunk):
        kept = min(chunk, num_parts - first)
        index = np.minimum(np.arange(first, first + chunk), num_parts - 1)
        part = jax.tree.map(lambda leaf, index=index: leaf[index], groups)
        found_losses, found_grads, found_more = jax.device_get(several(params, part, *rest))
        if grads is None:
            losses = np.zeros((num_groups, *found_losses.shape[1:]), found_losses.dtype)
            grads = np.zeros((num_groups, *found_grads.shape[1:]), found_grads.dtype)
        for i in range(kept):
            losses[owner[first + i]] += found_losses[i]
            grads[owner[first + i]] += found_grads[i]
        more.append(jax.tree.map(lambda leaf, kept=kept: leaf[:kept], found_more))
    return GroupGradients(losses, grads, jax.tree.map(lambda *parts: np.concatenate(parts), *more))
