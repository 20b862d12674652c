"""Shortest paths on the board by growing sets of cells."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax

from hmx.game import bits
from hmx.game.bits import MOVES, SIDE, Array, Board, u32

_ROUNDS_PER_TEST = 3


class Flood(NamedTuple):
    """The cells nearer than the target, whether it was reached, and how far it is (0 if not reached)."""

    seen: Board
    reached: Array
    distance: Array


# A half board leaves 14 bits of its word free: the low half carries the state of the search there, since every
# array that a loop carries costs a kernel of its own.
_OPEN, _REACHED, _DISTANCE = 18, 19, 20
_HALF_BITS = (1 << bits.HALF) - 1


def flood(start: Board, region: Board, target: Board, active: Array) -> Flood:
    """Grow `start` through `region` until it touches `target`, in the games where `active` [B] holds.

    `seen` is left as it was one round before the target was reached, so it holds every cell nearer than the target.
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
    return Flood(Board(last.lo & _HALF_BITS, last.hi), reached, distance)


def _grow(words: Board, region: Board, target: Board) -> Board:
    seen = Board(words.lo & _HALF_BITS, words.hi)
    is_open = (words.lo >> _OPEN) & 1 != 0
    grown = seen | (bits.around(seen) & region)
    hit = bits.some(grown & target)
    still = is_open & ~hit & bits.some(grown ^ seen)
    kept = bits.pick(still, grown, seen)
    status = (words.lo & ~u32(_HALF_BITS | 1 << _OPEN)) + (u32(is_open) << _DISTANCE)
    status = status | (u32(is_open & hit) << _REACHED) | (u32(still) << _OPEN)
    return Board(kept.lo | status, kept.hi)


def exit_distance(pos: Array, exit_index: Array, obstacles: Board, active: Array) -> Array:
    """Return the length of the shortest path from `pos` to the exit around blocks; 0 if there or if there is none.

    Neither end is an obstacle (rules, section 7.3). int32 [B].
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
    """Return where an enemy that does not attack goes (rules, section 4.2: P1, P2, P3).

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
    searching = active & (enemy != player)
    free = passable & ~occupied
    around_free = flood(goal, free | here, here, searching)
    blocked = searching & ~around_free.reached
    through_all = flood(goal, passable | here, here, blocked)
    steps = [move(here) for move in MOVES]

    def nearer(found: Flood) -> Array:
        return _first([found.reached & bits.some(s & found.seen) for s in steps])

    by_p1, by_p2 = nearer(around_free), nearer(through_all)
    open_steps = [bits.some(s & free) for s in steps]
    p2_free = jnp.zeros_like(active)
    for i in range(4):
        p2_free = p2_free | ((by_p2 == i) & open_steps[i])
    by_p3 = _closest(enemy, player, open_steps)
    choice = jnp.where(around_free.reached, by_p1, jnp.where(p2_free, by_p2, by_p3))
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
    """Return cells in the player's row and column with no stop strictly before them (rules, section 2.5)."""
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
    return Board((row << shift) & u32((1 << bits.HALF) - 1), row << (shift - bits.HALF))


def col_cells(index: Array) -> Board:
    """Return all cells of the column of `index`."""
    column = u32(0b000001_000001_000001) << bits.col_of(u32(index))
    return Board(column, column)
