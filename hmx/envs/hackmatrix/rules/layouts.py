"""Positions of the blocks of a stage: random layouts, redrawn until connected and siphonable.

Layouts are rejected often (91 % of those with 11 blocks), and only the games that enter a stage need one. So the
games of a batch that wait for a layout share a fixed number of lanes, several attempts each, until all are served.
Attempt number a of a game depends only on its own words, so the result does not depend on who shares the lanes.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax

from hmx.envs.hackmatrix.rules import bits
from hmx.envs.hackmatrix.rules.bits import Array, Board
from hmx.envs.hackmatrix.rules.state import CORNERS

LAYOUT_STREAM = 7
MAX_BLOCKS = 11
MAX_ATTEMPTS = 100
MAX_LANES = 256
MIN_LANES = 16


class LayoutRequest(NamedTuple):
    """The constraints of a layout, per game."""

    eligible: Board  # cells that may hold a block
    exit_first: Array  # bool: the exit is on cell 0
    exit: Board
    blocks: Array  # int32, how many
    words: Array  # uint32 [2, B]


def attempt(request: LayoutRequest, number: Array) -> tuple[Board, Array]:
    """Return one layout, and whether it is accepted; `number` [B] is that of the attempt."""

    def place(i: Array, carry: tuple[Board, Board]) -> tuple[Board, Board]:
        free, placed = carry
        word = bits.draw(request.words, LAYOUT_STREAM, number * MAX_BLOCKS + i)
        index = bits.select_cell(free, bits.below(word, bits.count(free)))
        new = bits.only(bits.cell(index), (i < request.blocks) & bits.some(free))
        return free & ~new, placed | new

    _, placed = lax.fori_loop(0, MAX_BLOCKS, place, (request.eligible, bits.empty_like(number)))
    return placed, connected(placed, request.exit, request.exit_first) & siphonable(placed)


def connected(placed: Board, exit_cell: Board, exit_first: Array) -> Array:
    """Return whether a walk from cell 0 over open cells reaches every open cell, the exit being a dead end.

    If the exit is cell 0 itself, the walk starts there and does leave it.
    """
    start = bits.empty_like(placed.lo) | bits.constant([0])
    open_ = ~placed
    dead_end = bits.only(exit_cell, ~exit_first)

    def grow(seen: Board) -> Board:
        return seen | (bits.around(seen & ~dead_end) & open_)

    def body(carry: tuple[Board, Array]) -> tuple[Board, Array]:
        seen, _ = carry
        for _ in range(4):
            seen, before = grow(seen), seen
        return seen, jnp.any(bits.some(seen ^ before))

    seen, _ = lax.while_loop(lambda c: c[1], body, (start, jnp.any(bits.some(start))))
    return ~bits.some(open_ & ~seen)


def siphonable(placed: Board) -> Array:
    """Return whether every block has an open neighbour."""
    return ~bits.some(placed & ~bits.around(~placed))


class _Search(NamedTuple):
    waiting: Array  # bool [B]
    tried: Array  # int32 [B]
    blocks: Board  # the accepted layouts


def find(request: LayoutRequest, needed: Array) -> Board:
    """Return accepted layouts for the games in `needed` [B]; empty ones elsewhere and after 100 failures."""
    size = needed.shape[0]
    lanes = min(MAX_LANES, max(MIN_LANES, 8 * size))

    def body(s: _Search) -> _Search:
        order = jnp.cumsum(s.waiting, dtype=jnp.int32)
        served = jnp.minimum(order[-1], lanes)
        lane = jnp.arange(lanes, dtype=jnp.int32)
        rank = lane % served
        game = (order[None] <= rank[:, None]).sum(axis=1)
        number = s.tried[game] + lane // served
        mine = LayoutRequest(
            Board(request.eligible.lo[game], request.eligible.hi[game]),
            request.exit_first[game],
            Board(request.exit.lo[game], request.exit.hi[game]),
            request.blocks[game],
            request.words[:, game],
        )
        placed, accepted = attempt(mine, number)
        accepted = accepted & (number < MAX_ATTEMPTS)
        hits = accepted[None] & (rank[None] == lane[:, None])
        winner = jnp.min(jnp.where(hits, lane[None], lanes), axis=1)

        place = order - 1
        taking_part = s.waiting & (place < served)
        won = jnp.where(taking_part, winner[jnp.clip(place, 0, lanes - 1)], lanes)
        found = won < lanes
        index = jnp.minimum(won, lanes - 1)
        blocks = bits.pick(found, Board(placed.lo[index], placed.hi[index]), s.blocks)
        tried = s.tried + jnp.where(taking_part, (lanes - place + served - 1) // served, 0)
        return _Search(s.waiting & ~found & (tried < MAX_ATTEMPTS), tried, blocks)

    start = _Search(needed, jnp.zeros(size, jnp.int32), bits.empty_like(needed))
    return lax.while_loop(lambda s: jnp.any(s.waiting), body, start).blocks


def corner_board() -> Board:
    """Return the four corners, without batch axes."""
    return bits.constant(list(CORNERS))
