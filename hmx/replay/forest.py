"""Parallel sum trees, for sampling slots of a buffer in proportion to their weights.

Every node has eight children and is their sum, recomputed on each write: writing a slot twice is the same as writing
it once, and rounding errors do not accumulate. Eight children were the fastest on a CPU with 10^5 and 10^6 slots, among
2 to 64 (`benchmarks/replay_sampler.py`).

Descending with one float32 number alone would distort the probabilities of a large buffer: each of 10^6 slots would
span only about ten of the 2^24 possible numbers. So after each level, the rest of the number gets further random bits
below those it already has.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

FANOUT = 8
_RESOLUTION = 2.0**-24
_JUST_BELOW = 1.0 - 2.0**-23
_BITS_PER_LEVEL = 8

Forest = tuple[Float[Array, "trees _ fanout"], ...]
"""From the roots down: the children of `rows` nodes; the leaves come last."""


def build(leaves: Float[Array, "trees capacity"]) -> Forest:
    """Build trees over non-negative leaves; O(capacity)."""
    trees = leaves.shape[0]
    levels, nodes = [], leaves
    while True:
        rows = -(-nodes.shape[1] // FANOUT)
        padded = jnp.pad(nodes, ((0, 0), (0, rows * FANOUT - nodes.shape[1])))
        levels.append(padded.reshape(trees, rows, FANOUT))
        if rows == 1:
            return tuple(reversed(levels))
        nodes = levels[-1].sum(-1)


def totals(forest: Forest) -> Float[Array, " trees"]:
    """Return the sum over the leaves of each tree."""
    return forest[0].sum((1, 2))


def leaves_at(forest: Forest, index: Int[Array, " B"]) -> Float[Array, "trees B"]:
    """Return the leaves of some slots."""
    leaves = forest[-1]
    return leaves.reshape(leaves.shape[0], -1)[:, index]


def update(forest: Forest, tree: int, index: Int[Array, " B"], value: Float[Array, " B"]) -> Forest:
    """Write values to leaves of one tree, and update the sums above them.

    An index may occur more than once, with the same value each time.
    """
    levels = list(forest)
    row, child = _row_and_child(index)
    levels[-1] = _put(levels[-1], tree, row, child, value)
    for depth in range(len(levels) - 2, -1, -1):
        sums = levels[depth + 1].at[tree, row].get(mode="promise_in_bounds").sum(-1)
        row, child = _row_and_child(row)
        levels[depth] = _put(levels[depth], tree, row, child, sums)
    return tuple(levels)


def draw(
    forest: Forest, key: Key[Array, ""], tree: Int[Array, " B"], stratum: Int[Array, " B"], num_strata: Int[Array, " B"]
) -> Int[Array, " B"]:
    """Sample one slot per entry from its `tree`, with probability leaf / total.

    Stratified: entry b lies in part `stratum[b]` (from 0) of `num_strata[b]` equal parts of its tree's total; 0 parts
    where the entry is not used. A slot with leaf 0 is never sampled from a tree whose total is above 0. The resolution
    among a node's children is 2^-24 of its total.
    """
    coarse, *fine = jax.random.bits(key, (1 + -(-len(forest) * _BITS_PER_LEVEL // 32), *tree.shape), jnp.uint32)
    share = (stratum + (coarse >> 8) * jnp.float32(_RESOLUTION)) / jnp.maximum(num_strata, 1)
    total = totals(forest)[tree]
    left, spacing, node = share * total, total * _RESOLUTION, jnp.zeros(tree.shape, jnp.int32)
    for depth, level in enumerate(forest):
        child, before = _choose(level.at[tree, node].get(mode="promise_in_bounds"), left)
        word, byte = divmod(depth, 32 // _BITS_PER_LEVEL)
        bits = (fine[word] >> (_BITS_PER_LEVEL * byte)) & (2**_BITS_PER_LEVEL - 1)
        left = jnp.maximum(left - before, 0.0) + spacing * (bits * jnp.float32(2.0**-_BITS_PER_LEVEL))
        spacing = jnp.maximum(spacing * 2.0**-_BITS_PER_LEVEL, left * _RESOLUTION)
        node = node * FANOUT + child
    return node


def _row_and_child(node: Array) -> tuple[Array, Array]:
    # lax, as nodes are not negative: jnp would also handle that case.
    fanout = jnp.full_like(node, FANOUT)
    return jax.lax.div(node, fanout), jax.lax.rem(node, fanout)


def _put(level: Array, tree: int, row: Array, child: Array, value: Array) -> Array:
    return level.at[tree, row, child].set(value, mode="promise_in_bounds")


def _choose(children: Array, left: Array) -> tuple[Array, Array]:
    """Return the child that contains `left [B]`, and the sum of the children before it; `children [B, FANOUT]`."""
    # Multiplying by a triangle of ones: XLA has no cumulative sum that is fast on rows of eight.
    up_to = jnp.dot(children, jnp.triu(jnp.ones((FANOUT, FANOUT), jnp.float32)), precision="highest")
    passed = jnp.minimum(left, up_to[:, -1] * _JUST_BELOW)[:, None] >= up_to
    candidates = jnp.where(passed | (children <= 0.0), FANOUT - 1, jnp.arange(FANOUT, dtype=jnp.int32)[None])
    return candidates.min(-1), jnp.where(passed, children, 0.0).sum(-1)
