"""Shortest paths on the board by growing sets of cells."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax

from hmx.envs.hackmatrix.rules import bits
from hmx.envs.hackmatrix.rules.bits import MOVES, SIDE, Array, Board, u32

_ROUNDS_PER_TEST = 3
_THROUGH = 3  # the bit that marks a direction of a path through others


class Flood(NamedTuple):
    """The cells nearer than the target, whether it was reached, and its distance (0 if not reached)."""

    seen: Board
    reached: Array
    distance: Array


# A half board leaves 14 bits of its word unused: the low half stores the state of the search there, since every
# array that a loop carries costs its own kernel.
_OPEN, _REACHED, _DISTANCE = 18, 19, 20


def flood(start: Board, region: Board, target: Board, active: Array) -> Flood:
    """Grow `start` through `region` until it touches `target`, in the games where `active` [B] holds.

    `seen` stays as it was one round before the target was reached, so it holds every cell nearer than the target.
    """

    def body(words: Board) -> Board:
        for _ in range(_ROUNDS_PER_TEST):
            words = _grow(words, region, target)
        return words

    goes = active & ~bits.some(start & target) & bits.some(start)
    first = Board(start.lo | (u32(goes) << _OPEN), start.hi)
    last = lax.while_loop(lambda w: jnp.any((w.lo >> _OPEN) & 1 != 0), body, first)
    reached = (last.lo >> _REACHED) & 1 != 0
    distance = jnp.where(reached, last.lo >> _DISTANCE, 0).astype(jnp.int32)
    return Flood(Board(last.lo & bits.HALF_MASK, last.hi), reached, distance)


def _grow(words: Board, region: Board, target: Board) -> Board:
    seen = Board(words.lo & bits.HALF_MASK, words.hi)
    is_open = (words.lo >> _OPEN) & 1 != 0
    grown = seen | (bits.around(seen) & region)
    hit = bits.some(grown & target)
    still = is_open & ~hit & bits.some(grown ^ seen)
    kept = bits.pick(still, grown, seen)
    status = (words.lo & ~u32(bits.HALF_MASK | 1 << _OPEN)) + (u32(is_open) << _DISTANCE)
    status = status | (u32(is_open & hit) << _REACHED) | (u32(still) << _OPEN)
    return Board(kept.lo | status, kept.hi)


def exit_distance(pos: Array, exit_index: Array, obstacles: Board, active: Array) -> Array:
    """Return the length of the shortest path from `pos` to the exit around blocks; 0 if there or without a path.

    Neither end is an obstacle. int32 [B].
    """
    start, target = bits.cell(pos), bits.cell(exit_index)
    return flood(start, ~obstacles | target, target, active).distance


def _first(options: list[Array]) -> Array:
    """Return the index of the first true option, 4 if none."""
    found = jnp.full(options[0].shape, len(options), jnp.int32)
    for i in reversed(range(len(options))):
        found = jnp.where(options[i], i, found)
    return found


def enemy_move(enemy: Array, player: Array, passable: Board, occupied: Board, active: Array) -> tuple[Array, Board]:
    """Return the move of an enemy that does not attack.

    Args:
        enemy: uint32 [B], its cell. Its own cell never matters as an obstacle: no shortest path returns to it.
        player: uint32 [B], the player's cell, which is a goal only if passable.
        passable: cells this enemy may enter.
        occupied: cells of the other enemies and of all transmissions.
        active: bool [B].

    Returns:
        Whether it moves, and the cell it moves to (empty if it stays).
    """
    here, goal = bits.cell(enemy), bits.cell(player) & passable
    free = passable & ~occupied
    steps = [move(here) for move in MOVES]

    def search(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        """P1, a path around the others; without one P2, a path through them, marked as such."""
        through, searching, choice = carry
        found = flood(goal, bits.pick(through != 0, passable, free) | here, here, searching)
        nearer = _first([bits.some(s & found.seen) for s in steps]) | through << _THROUGH
        return through + 1, searching & ~found.reached, jnp.where(found.reached, nearer, choice)

    start = (jnp.int32(0), active & (enemy != player), jnp.full(enemy.shape, 4, jnp.int32))
    _, _, by_path = lax.while_loop(lambda c: (c[0] < 2) & jnp.any(c[1]), search, start)
    direction = by_path & ((1 << _THROUGH) - 1)
    open_steps = [bits.some(s & free) for s in steps]
    walks = by_path < 4
    for i in range(4):
        walks = walks | ((direction == i) & open_steps[i])
    choice = jnp.where(walks, direction, _closest(enemy, player, open_steps))
    target = bits.empty_like(enemy)
    for i in range(4):
        target = target | bits.only(steps[i], active & (choice == i))
    return active & (choice < 4), target


def _closest(enemy: Array, player: Array, open_steps: list[Array]) -> Array:
    """Return the open direction that ends nearest to the player by Manhattan distance; ties U, D, L, R; 4 if none."""
    row, col = (bits.row_of(enemy)).astype(jnp.int32), (bits.col_of(enemy)).astype(jnp.int32)
    goal_row, goal_col = (bits.row_of(player)).astype(jnp.int32), (bits.col_of(player)).astype(jnp.int32)
    best, choice = jnp.full(row.shape, 99, jnp.int32), jnp.full(row.shape, 4, jnp.int32)
    for i, (dr, dc) in enumerate(((1, 0), (-1, 0), (0, -1), (0, 1))):
        distance = jnp.abs(row + dr - goal_row) + jnp.abs(col + dc - goal_col)
        better = open_steps[i] & (distance < best)
        best, choice = jnp.where(better, distance, best), jnp.where(better, i, choice)
    return choice


def line_of_fire(player: Array, stops: Board) -> Board:
    """Return cells in the player's row and column without an obstacle before them."""
    line = bits.empty_like(player)
    for move in MOVES:
        front = bits.cell(player)
        for _ in range(SIDE - 1):
            front = move(front)
            line = line | front
            front = front & ~stops
    return line


def row_cells(index: Array) -> Board:
    """Return all cells of the row of `index`."""
    shift = bits.row_of(u32(index)) * SIDE
    row = u32((1 << SIDE) - 1)
    return Board((row << shift) & u32(bits.HALF_MASK), row << (shift - bits.HALF))


def col_cells(index: Array) -> Board:
    """Return all cells of the column of `index`."""
    column = u32(0b000001_000001_000001) << bits.col_of(u32(index))
    return Board(column, column)
