"""Sum trees: sums, what may be drawn, and how exact the probabilities are."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hmx.replay import forest

SIZES = [1, 8, 9, 600]
build, update = jax.jit(forest.build), jax.jit(forest.update, static_argnums=1)


@cache
def drawer(num):
    """Independent draws from the first tree."""
    none, one = jnp.zeros(num, jnp.int32), jnp.ones(num, jnp.int32)
    return jax.jit(lambda trees, key: forest.draw(trees, key, none, none, one))


@pytest.mark.parametrize("size", SIZES)
def test_totals_are_sums_of_leaves(size):
    leaves = np.arange(2 * size, dtype=np.float32).reshape(2, size)
    trees = build(leaves)
    np.testing.assert_allclose(forest.totals(trees), leaves.sum(1), rtol=1e-6)
    np.testing.assert_array_equal(forest.leaves_at(trees, jnp.arange(size)), leaves)
    assert all(level.shape[2] == forest.FANOUT for level in trees) and trees[0].shape[1] == 1


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 599), st.floats(0.0, 1e3, width=32)), min_size=16, max_size=16))
def test_update_equals_rebuilding(writes):
    """To the bit, for every sum, however often a slot is written; the other tree stays."""
    last = dict(writes)
    index = jnp.array([slot for slot, _ in writes], jnp.int32)
    value = jnp.array([last[slot] for slot, _ in writes], jnp.float32)
    before = np.ones((2, 600), np.float32)
    after = before.copy()
    after[1, list(last)] = list(last.values())
    jax.tree.map(np.testing.assert_array_equal, update(build(before), 1, index, value), build(after))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e20])
def test_zero_weights_are_never_sampled(size, scale):
    leaves = np.zeros((1, size), np.float32)
    leaves[0, ::3] = scale
    leaves[0, -1] = 0.0 if size > 1 else scale
    drawn = np.asarray(drawer(4096)(build(leaves), jax.random.key(size)))
    assert (leaves[0, drawn] > 0.0).all()


def test_end_of_the_last_stratum_has_a_positive_weight():
    """Four million strata leave so few bits that many of these numbers round up to the total itself."""
    last = jnp.full(4096, 2**22 - 1)
    drawn = forest.draw(build(jnp.zeros((1, 600)).at[0, :5].set(0.3)), jax.random.key(0), last * 0, last, last + 1)
    assert (drawn == 4).all()


def test_slots_within_the_last_digits_of_a_number_are_sampled_equally_often():
    """The last of 2^21 strata holds 64 slots, but only 8 float32 numbers."""
    strata = 2**21
    leaves = jnp.zeros((1, 512)).at[0, 100].set(64.0 * (strata - 1)).at[0, 448:].set(1.0)
    last = jnp.full(4096, strata - 1)
    drawn = forest.draw(build(leaves), jax.random.key(0), last * 0, last, last + 1)
    counts = np.bincount(drawn, minlength=512)
    assert counts[448:].sum() == 4096
    inner = counts[456:504]  # numbers are rounded at both ends of the stratum
    assert inner.min() > 64 - 5 * 8 and inner.max() < 64 + 5 * 8


@pytest.mark.parametrize("hot", [0, 8, 599])
def test_single_positive_leaf_is_always_sampled(hot):
    leaves = jnp.zeros((1, 600)).at[0, hot].set(1e-6)
    assert (drawer(4096)(build(leaves), jax.random.key(1)) == hot).all()


def test_strata_cover_every_slot_once():
    """As many strata as slots of equal weight, a power of two, so that their borders agree."""
    entry = jnp.arange(512, dtype=jnp.int32)
    drawn = forest.draw(build(jnp.ones((1, 512))), jax.random.key(0), entry * 0, entry, jnp.full_like(entry, 512))
    np.testing.assert_array_equal(drawn, entry)


def test_trees_are_sampled_independently():
    leaves = jnp.zeros((2, 600)).at[0, 3].set(1.0).at[1, 500].set(1e9)
    tree = jnp.arange(64, dtype=jnp.int32) % 2
    drawn = forest.draw(build(leaves), jax.random.key(0), tree, tree * 0, tree * 0 + 1)
    np.testing.assert_array_equal(drawn, jnp.where(tree == 0, 3, 500))


def plain_float32_tree(leaves, key, num):
    """A binary sum tree that one float32 number descends, as is usual."""
    levels = [jnp.pad(leaves, (0, 2 ** (leaves.shape[0] - 1).bit_length() - leaves.shape[0]))]
    while levels[0].shape[0] > 1:
        levels.insert(0, levels[0].reshape(-1, 2).sum(1))
    left, index = jax.random.uniform(key, (num,)) * levels[0][0], jnp.zeros(num, jnp.int32)
    for level in levels[1:]:
        first = level[2 * index]
        right = left >= first
        index, left = 2 * index + right, jnp.where(right, left - first, left)
    return index


def excess(leaves, draw, rounds, num):
    """How many standard deviations Pearson's chi-square lies above its mean."""
    counts = np.zeros(leaves.shape[0])
    for i in range(rounds):
        drawn = np.asarray(draw(jax.random.fold_in(jax.random.key(5), i)))
        counts += np.bincount(drawn, minlength=leaves.shape[0])[: leaves.shape[0]]
    probs = np.asarray(leaves, np.float64) / np.asarray(leaves, np.float64).sum()
    expected = rounds * num * probs
    chi_square = ((counts - expected) ** 2 / expected).sum()
    cells = leaves.shape[0]
    # of a multinomial, few expected counts included (Haldane 1937)
    variance = 2 * (cells - 1) + ((1 / probs).sum() - cells**2 - 2 * cells + 2) / (rounds * num)
    return (chi_square - (cells - 1)) / np.sqrt(variance)


@pytest.mark.parametrize("size", [10_000, pytest.param(1_000_000, marks=pytest.mark.long_run)])
def test_probabilities_are_exact_where_a_plain_float32_tree_is_not(size):
    num, rounds = 2**20, 4 if size == 1_000_000 else 1
    leaves = jax.random.uniform(jax.random.key(2), (size,)) + 0.1
    trees = build(leaves[None])
    assert abs(excess(leaves, lambda key: drawer(num)(trees, key), rounds, num)) < 4.5
    if size == 1_000_000:
        plain = jax.jit(lambda key: plain_float32_tree(leaves, key, num))
        assert excess(leaves, plain, rounds, num) > 6.0


def test_probabilities_are_exact_behind_a_heavy_slot():
    """Nine tenths in one slot: the others still have the right shares of what is left."""
    leaves = jnp.ones(100_000).at[77].set(900_000.0)
    drawn = np.asarray(drawer(2**20)(build(leaves[None]), jax.random.key(3)))
    rest = drawn[drawn != 77]
    assert abs(len(rest) / 2**20 - 0.1) < 5 * np.sqrt(0.09 / 2**20)
    halves, odd = (rest >= 50_000).mean(), (rest % 2).mean()
    assert abs(halves - 0.5) < 5 * np.sqrt(0.25 / len(rest)) and abs(odd - 0.5) < 5 * np.sqrt(0.25 / len(rest))
