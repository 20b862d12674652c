"""Sets of board cells and of roster slots as machine words, and the random draws made from two words.

A board has 36 cells, index `row * 6 + col`; a `Board` holds rows 0 to 2 in the low 18 bits of one uint32
and rows 3 to 5 in another. A roster has 32 slots, one bit each of a uint32. All functions are element-wise
over a trailing batch axis, so that a batch of games costs a few vector instructions per operation.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

Array = jax.Array

SIDE = 6
CELLS = SIDE * SIDE
HALF = CELLS // 2
SLOTS = 32

HALF_MASK = (1 << HALF) - 1
_COL_0 = sum(1 << (SIDE * r) for r in range(3))
_NOT_COL_0 = HALF_MASK & ~_COL_0
_NOT_COL_5 = HALF_MASK & ~(_COL_0 << 5)


def u32(x: int | Array) -> Array:
    """Return a uint32 array or scalar."""
    if isinstance(x, int):
        return jnp.asarray(x, jnp.uint32)
    return x.astype(jnp.uint32)


class Board(NamedTuple):
    """A set of cells: `lo` holds rows 0 to 2, `hi` rows 3 to 5."""

    lo: Array
    hi: Array

    def __and__(self, other: Board) -> Board:
        return Board(self.lo & other.lo, self.hi & other.hi)

    def __or__(self, other: Board) -> Board:
        return Board(self.lo | other.lo, self.hi | other.hi)

    def __xor__(self, other: Board) -> Board:
        return Board(self.lo ^ other.lo, self.hi ^ other.hi)

    def __invert__(self) -> Board:
        return Board(~self.lo & HALF_MASK, ~self.hi & HALF_MASK)


def empty_like(x: Array) -> Board:
    """Return the empty set, in the batch shape of `x`."""
    zero = jnp.zeros(x.shape, jnp.uint32)
    return Board(zero, zero)


def constant(cells: list[int]) -> Board:
    """Return a fixed set of cells, without batch axes."""
    word = sum(1 << c for c in cells)
    return Board(u32(word & HALF_MASK), u32(word >> HALF))


def cell(index: Array) -> Board:
    """Return the set of one cell; shifts past the word give 0, which selects the half."""
    index = u32(index)
    return Board((u32(1) << index) & HALF_MASK, u32(1) << (index - HALF))


def has(board: Board, index: Array) -> Array:
    """Return whether cell `index` is in the set, as bool."""
    index = u32(index)
    return (((board.lo >> index) | (board.hi >> (index - HALF))) & 1) != 0


def some(board: Board) -> Array:
    """Return whether the set is not empty."""
    return (board.lo | board.hi) != 0


def count(board: Board) -> Array:
    """Return the number of cells, int32."""
    return (lax.population_count(board.lo) + lax.population_count(board.hi)).astype(jnp.int32)


def only(board: Board, condition: Array) -> Board:
    """Return the set where `condition` holds, else the empty set."""
    return Board(jnp.where(condition, board.lo, 0), jnp.where(condition, board.hi, 0))


def pick(condition: Array, a: Board, b: Board) -> Board:
    """Return `a` where `condition` holds, else `b`."""
    return Board(jnp.where(condition, a.lo, b.lo), jnp.where(condition, a.hi, b.hi))


def up(b: Board) -> Board:
    """Return every cell moved one row up (row + 1)."""
    return Board((b.lo << 6) & HALF_MASK, ((b.hi << 6) | (b.lo >> 12)) & HALF_MASK)


def down(b: Board) -> Board:
    """Return every cell moved one row down (row - 1)."""
    return Board((b.lo >> 6) | ((b.hi << 12) & HALF_MASK), b.hi >> 6)


def left(b: Board) -> Board:
    """Return every cell moved one column left."""
    return Board((b.lo & _NOT_COL_0) >> 1, (b.hi & _NOT_COL_0) >> 1)


def right(b: Board) -> Board:
    """Return every cell moved one column right."""
    return Board((b.lo & _NOT_COL_5) << 1, (b.hi & _NOT_COL_5) << 1)


MOVES = (up, down, left, right)
"""The four directions in the order of every tie-break: U, D, L, R."""


def around(b: Board) -> Board:
    """Return the four neighbours of every cell of the set."""
    return up(b) | down(b) | left(b) | right(b)


def cross(b: Board) -> Board:
    """Return the set and its four-neighbours."""
    return b | around(b)


def ring(b: Board) -> Board:
    """Return the eight neighbours of a single cell."""
    row = left(b) | right(b)
    band = row | b
    return row | up(band) | down(band)


def row_of(index: Array) -> Array:
    """Return the row of a cell index (43 / 256 is close enough to 1 / 6 below 36, and a shift is cheaper)."""
    return (index * 43) >> 8


def col_of(index: Array) -> Array:
    """Return the column of a cell index."""
    return index - row_of(index) * SIDE


def index_of(board: Board) -> Array:
    """Return the index of the lowest cell of a non-empty set, uint32."""
    low = lax.population_count((board.lo & -board.lo) - 1)
    high = lax.population_count((board.hi & -board.hi) - 1) + HALF
    return jnp.where(board.lo != 0, low, high).astype(jnp.uint32)


def select_bit(word: Array, n: Array) -> Array:
    """Return the position of the `n`-th (from 0) set bit of a uint32 word, by bisection over bit counts."""
    position = jnp.zeros_like(word)
    n = u32(n)
    for size in (16, 8, 4, 2, 1):
        below = lax.population_count((word >> position) & ((1 << size) - 1))
        skip = n >= below
        n = jnp.where(skip, n - below, n)
        position = jnp.where(skip, position + size, position)
    return position


def select_cell(board: Board, n: Array) -> Array:
    """Return the index of the `n`-th (from 0) cell of the set."""
    n = u32(n)
    low = lax.population_count(board.lo)
    in_low = n < low
    word = jnp.where(in_low, board.lo, board.hi)
    found = select_bit(word, jnp.where(in_low, n, n - low))
    return jnp.where(in_low, found, found + HALF)


def lowest(word: Array) -> Array:
    """Return the lowest set bit alone."""
    return word & -word


def lowest_cell(board: Board) -> Board:
    """Return the lowest cell of the set alone."""
    lo = lowest(board.lo)
    return Board(lo, jnp.where(lo == 0, lowest(board.hi), 0))


def compress(planes: Array, keep: Array) -> Array:
    """Move the kept slots of every plane to the low end, in order.

    Args:
        planes: uint32 [P, B], bit k of a plane belongs to slot k.
        keep: uint32 [B], the slots to keep.

    The parallel suffix method of Warren, Hacker's Delight, section 7-4, on all planes at once.
    """
    planes = planes & keep[None]
    mask = keep
    zeros_right = ~mask << 1
    for i in range(5):
        prefix = zeros_right
        for shift in (1, 2, 4, 8, 16):
            prefix = prefix ^ (prefix << shift)
        move = prefix & mask
        mask = (mask ^ move) | (move >> (1 << i))
        moved = planes & move[None]
        planes = (planes ^ moved) | (moved >> (1 << i))
        zeros_right = zeros_right & ~prefix
    return planes


def _mix(x: Array) -> Array:
    """Apply a bijection of 32-bit words with low bias (constants of Wellons, Hash Prospector, 2018)."""
    x = (x ^ (x >> 16)) * u32(0x7FEB352D)
    x = (x ^ (x >> 15)) * u32(0x846CA68B)
    return x ^ (x >> 16)


def draw(words: Array, stream: int, index: int | Array = 0) -> Array:
    """Return a random word, a function of the step's two random words, a stream number and an index.

    Args:
        words: uint32 [2, B], fresh from the key of each game.
        stream: a number that is unique to this use.
        index: which draw of the stream; python int or an array that broadcasts against [B].
    """
    counter = u32(index) * u32(0x9E3779B9) + u32((stream * 0x85EBCA6B) & 0xFFFFFFFF)
    return _mix(_mix(words[0] + counter) ^ words[1])


def below(word: Array, n: Array) -> Array:
    """Return a uniform integer in [0, n) from a random word, n <= 255; its bias is under n / 2^24."""
    return ((word >> 8) * u32(n)) >> 24
