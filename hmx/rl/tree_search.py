"""Gumbel search of a tree of positions (Danihelka et al. 2022, ICLR), for many roots side by side.

The root tries its most promising actions by sequential halving (Karnin et al. 2013, ICML); below it, the search chooses
actions so that their visits approach the improved policy. All arrays have the node as the first axis, so that a new
node of all searches is one block of memory, and the search never copies the tree: its cost per simulation is almost
constant.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool

from hmx.rl import distributions
from hmx.types import Array, Key

_TINY = 1e-30


class Judged(NamedTuple):
    """Positions as the agent sees them; `position` is what `simulate` continues from."""

    log_probs: Array  # [E, A]: `distributions.ILLEGAL` where illegal
    value: Array  # [E]
    position: Any


class Simulated(NamedTuple):
    """The result of one action in each position."""

    reward: Array  # [E]
    discount: Array  # [E]: 0 where the episode ended
    after: Judged


class Found(NamedTuple):
    """The result of a search."""

    action: Array  # [E] int32: the best one
    probs: Array  # [E, A]: the improved policy
    value: Array  # [E]: expected return of the improved policy, with the mixed value for actions that were not tried
    visits: Array  # [E, A] int32: simulations of each action


class _Tree(NamedTuple):
    """The `N` nodes of `E` searches; node 0 is the root. Reward and discount are those of the step into a node."""

    child: Array  # [N, E, A] int32: the node that an action leads to; 0 where it was not tried
    log_probs: Array  # [N, E, A]
    judged: Array  # [N, E]: value by the agent
    value: Array  # [N, E]: mean of `judged` and of the returns of the simulations that continued from it
    visits: Array  # [N, E] int32
    parent: Array  # [N, E] int32
    reward: Array  # [N, E]
    discount: Array  # [N, E]
    position: Any  # leaves [N, ...]


Simulate = Callable[[Key, Array, Any], Simulated]
Scale = Callable[[Array, Array], Array]


def search(
    key: Key,
    root: Judged,
    legal: Bool[Array, "envs actions"],
    simulate: Simulate,
    scale: Scale,
    *,
    num_simulations: int,
    max_considered: int,
    axes: Any = 0,
    greedy: bool = False,
) -> Found:
    """Search from each of `E` positions with `num_simulations` simulated steps.

    Args:
        key: key of the Gumbel noise and of the simulated steps.
        root: the positions.
        legal: actions that the root may take; below it, the log-probabilities alone decide.
        simulate: `(key, action [E], position) -> Simulated`: one step in each position.
        scale: `(values [E, A], most visits of an action [E, 1]) -> [E, A]`: what values add to logits; rises with them.
        num_simulations: each adds a node.
        max_considered: actions that the root tries at most.
        axes: that of the batch in the leaves of `position`, as for `jax.vmap`.
        greedy: leave out the Gumbel noise, so that the action is the best of the improved policy.
    """
    k_steps, k_gumbel = jax.random.split(key)
    gumbel = jnp.zeros(legal.shape) if greedy else jax.random.gumbel(k_gumbel, legal.shape)
    root = root._replace(log_probs=distributions.log_probs(root.log_probs, legal))
    considered = jnp.minimum(legal.sum(-1), max_considered)
    table = jnp.asarray([considered_visits(count, num_simulations) for count in range(max_considered + 1)])

    def tried(tree: _Tree) -> tuple[Array, Array, Array]:
        """Return the visits of the root's actions, their contribution to the logits, and their values."""
        visits, values = _children(tree, tree.child[0], root.log_probs, root.value)
        return visits, scale(values, visits.max(-1, keepdims=True)), values

    def best(visits: Array, rise: Array, turn: Array) -> Array:
        """Return the best of the root's actions that have been tried `turn` times."""
        score = gumbel + root.log_probs + rise
        return first_highest(jnp.where(legal & (visits == turn[:, None]), score, -jnp.inf))

    def grow(tree: _Tree, now: tuple[Array, Key, Array]) -> tuple[_Tree, None]:
        node, key, turns = now
        parent, action = _descend(tree, best(*tried(tree)[:2], turns[considered]), scale)
        at = _moved(jax.tree.map(lambda leaf: leaf[parent, lanes], tree.position), 0, axes)
        simulated = simulate(key, action, at)
        after = simulated.after._replace(position=_moved(simulated.after.position, axes, 0))
        tree = _attach(tree, node, parent, action, simulated._replace(after=after))
        return _back_up(tree, node), None

    lanes = jnp.arange(legal.shape[0])
    nodes, keys = jnp.arange(1, num_simulations + 1), jax.random.split(k_steps, num_simulations)
    planted = _plant(root._replace(position=_moved(root.position, axes, 0)), num_simulations + 1)
    tree, _ = jax.lax.scan(grow, planted, (nodes, keys, table.T))
    visits, rise, values = tried(tree)
    probs = distributions.probs(root.log_probs + rise, legal)
    return Found(best(visits, rise, visits.max(-1)), probs, (probs * values).sum(-1), visits)


def considered_visits(considered: int, num_simulations: int) -> list[int]:
    """Return, for each simulation, the earlier visits of the action that it tries, by sequential halving.

    As in fig. 1 of Danihelka et al.: `considered` actions are tried equally often, then the better half of them, and so
    on down to 2.
    """
    if considered <= 1:
        return list(range(num_simulations))
    phases = math.ceil(math.log2(considered))
    order: list[int] = []
    tried, left = 0, considered
    while len(order) < num_simulations:
        times = max(1, num_simulations // (phases * left))
        order += [tried + i for i in range(times) for _ in range(left)]
        tried, left = tried + times, max(2, left // 2)
    return order[:num_simulations]


def first_highest(scores: Array) -> Array:
    """Return the first of the highest scores in each row of `[E, A]`, int32 [E].

    XLA on CPUs compares the pairs of score and index in `argmax` one by one, which takes eight times as long.
    """
    at = jnp.broadcast_to(jnp.arange(scores.shape[-1], dtype=jnp.int32), scores.shape)
    while scores.shape[-1] > 1:
        if scores.shape[-1] % 2:
            scores = jnp.pad(scores, ((0, 0), (0, 1)), constant_values=-jnp.inf)
            at = jnp.pad(at, ((0, 0), (0, 1)))
        later = scores[:, 1::2] > scores[:, ::2]
        scores = jnp.where(later, scores[:, 1::2], scores[:, ::2])
        at = jnp.where(later, at[:, 1::2], at[:, ::2])
    return at[:, 0]


def _moved(position: Any, source: Any, target: Any) -> Any:
    """Return positions with the axis of the batch elsewhere; `source` and `target` are axes as for `jax.vmap`."""
    return jax.vmap(lambda position: position, (source,), target)(position)


def _plant(root: Judged, num_nodes: int) -> _Tree:
    """Return the trees with only their roots."""

    def empty(leaf: Array) -> Array:
        return jnp.zeros((num_nodes, *leaf.shape), leaf.dtype).at[0].set(leaf)

    judged, none = empty(root.value), jnp.zeros(root.value.shape, jnp.int32)
    return _Tree(
        child=empty(jnp.zeros(root.log_probs.shape, jnp.int32)),
        log_probs=empty(root.log_probs),
        judged=judged,
        value=judged,
        visits=empty(none + 1),
        parent=empty(none),
        reward=jnp.zeros_like(judged),
        discount=jnp.zeros_like(judged),
        position=jax.tree.map(empty, root.position),
    )


def _children(tree: _Tree, child: Array, log_probs: Array, judged: Array) -> tuple[Array, Array]:
    """Return the visits and values of the actions at some nodes, `[E, A]`, given the rows of these nodes.

    An action that was not tried has the mixed value of appendix D of Danihelka et al.
    """
    lanes = jnp.arange(child.shape[0])[:, None]
    tried = child > 0
    visits = jnp.where(tried, tree.visits[child, lanes], 0)
    values = (tree.reward + tree.discount * tree.value)[child, lanes]
    probs = jnp.where(tried, jnp.maximum(jax.nn.softmax(log_probs), _TINY), 0.0)
    known = (probs * values).sum(-1) / jnp.maximum(probs.sum(-1), _TINY)
    total = visits.sum(-1)
    mixed = (judged + total * known) / (1.0 + total)
    return visits, jnp.where(tried, values, mixed[:, None])


def _descend(tree: _Tree, action: Array, scale: Scale) -> tuple[Array, Array]:
    """Follow each tree to an action that was not tried; return its node `[E]` and the action `[E]`.

    `action` is the action of the root. Below it, the search takes the action whose share of the visits is furthest
    below its probability under the improved policy (section 5 of Danihelka et al.).
    """
    lanes = jnp.arange(action.shape[0])

    def deeper(at: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        node, action, below = at
        moves = below > 0
        node = jnp.where(moves, below, node)
        child, log_probs = tree.child[node, lanes], tree.log_probs[node, lanes]
        visits, values = _children(tree, child, log_probs, tree.judged[node, lanes])
        improved = jax.nn.softmax(log_probs + scale(values, visits.max(-1, keepdims=True)))
        behind = first_highest(improved - visits / (1.0 + visits.sum(-1, keepdims=True)))
        action = jnp.where(moves, behind, action)
        return node, action, jnp.where(moves, child[lanes, action], 0)

    start = (jnp.zeros_like(action), action, tree.child[0, lanes, action])
    node, action, _ = jax.lax.while_loop(lambda at: (at[2] > 0).any(), deeper, start)
    return node, action


def _attach(tree: _Tree, node: Array, parent: Array, action: Array, found: Simulated) -> _Tree:
    """Add a node to each tree."""
    after = found.after
    return _Tree(
        child=tree.child.at[parent, jnp.arange(action.shape[0]), action].set(node, unique_indices=True),
        log_probs=tree.log_probs.at[node].set(after.log_probs),
        judged=tree.judged.at[node].set(after.value),
        value=tree.value.at[node].set(after.value),
        visits=tree.visits.at[node].set(1),
        parent=tree.parent.at[node].set(parent),
        reward=tree.reward.at[node].set(found.reward),
        discount=tree.discount.at[node].set(found.discount),
        position=jax.tree.map(lambda stored, new: stored.at[node].set(new), tree.position, after.position),
    )


def _back_up(tree: _Tree, node: Array) -> _Tree:
    """Count the return of a new node in all nodes above it."""
    lanes = jnp.arange(tree.value.shape[1])
    numbers = jnp.arange(tree.value.shape[0])[:, None]

    def higher(at: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        node, total, value, visits = at
        parent = tree.parent[node, lanes]
        total = tree.reward[node, lanes] + tree.discount[node, lanes] * total
        here = (numbers == parent[None]) & (node > 0)[None]  # a mask of all nodes, since a scatter would copy them
        return parent, total, jnp.where(here, (value * visits + total[None]) / (visits + 1), value), visits + here

    start = (jnp.full(lanes.shape, node), tree.value[node], tree.value, tree.visits)
    _, _, value, visits = jax.lax.while_loop(lambda at: (at[0] > 0).any(), higher, start)
    return tree._replace(value=value, visits=visits)
