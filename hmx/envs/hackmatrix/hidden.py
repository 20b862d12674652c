"""What the player of HackMatrix cannot see, drawn again: positions that agree with all that it has seen."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from hmx.envs.hackmatrix.observation import visible_enemies
from hmx.envs.hackmatrix.rules import bits, paths, roster
from hmx.envs.hackmatrix.rules.bits import SLOTS, Array, Board, u32
from hmx.envs.hackmatrix.rules.enemies import occupied
from hmx.envs.hackmatrix.rules.history import imagined
from hmx.envs.hackmatrix.rules.state import AMOUNTS, SPAWNS, VALUES, C, E, State, T, blocks, layer, removed
from hmx.envs.hackmatrix.rules.tables import PROGRAMS

TYPE_STREAM, PLACE_STREAM, BLOCK_STREAM = 32, 33, 34
_PROGRAM_COUNT = len(PROGRAMS)


def redrawn(state: State, words: Array, expected: State | None = None) -> State:
    """Return games that look the same to the player, with everything hidden drawn at random.

    Hidden are the cells of unseen cryptogs, the types of transmissions, the contents of question blocks, and what lies
    under blocks. An unseen cryptog is where the player expected it, if nothing visible contradicts that, or else on a
    cell next to it, or else anywhere out of sight. The number of unseen cryptogs is known, since a transmission that
    matures unseen is one, and so is the schedule of transmissions, since the player can count turns.

    Args:
        state: a batch of games [B].
        words: uint32 [2, B], random words of each game.
        expected: games as the player expected them after its last action, without enemies where it expects nothing. The
            snapshots of UNDO are then its own, and otherwise left out.
    """
    waiting = state.transmissions[T.ALIVE]
    kinds = jnp.stack([bits.draw(words, TYPE_STREAM, j) & waiting for j in range(2)])
    transmissions = jnp.concatenate([state.transmissions[: T.TYPE], kinds, state.transmissions[T.TIMER :]])
    drawn = _blocks(_cryptogs(state._replace(transmissions=transmissions), words, expected), words)
    if expected is None:
        return drawn._replace(history=state.history[:0], history_count=jnp.zeros_like(state.history_count))
    return imagined(drawn, state, expected.history)


def _cryptogs(state: State, words: Array, expected: State | None) -> State:
    """Move every unseen cryptog to a free cell in which the player would not see it."""
    unseen = state.enemies[E.ALIVE] & ~visible_enemies(state)
    in_sight = paths.row_cells(state.pos) | paths.col_cells(state.pos)
    visible = occupied(state._replace(enemies=state.enemies & ~unseen[None]))
    free = ~(in_sight | blocks(state.cells) | visible.enemies | visible.transmissions)

    def suited(free: Board, slot: Array) -> Board:
        """Return the cells that agree best with what the player expected; one that hides another item stays."""
        number = jnp.minimum(31 - lax.clz(slot), SLOTS - 1)
        here = roster.cell_of(state.enemies[: roster.PLACE], number) & (visible.enemies | visible.transmissions)
        if expected is not None:
            there = roster.cell_of(expected.enemies[: roster.PLACE], number)
            near = (there | bits.ring(there)) & free
            near = bits.pick(bits.some(there & free), there, near)
            free = bits.pick(bits.some(near), near, free)
        return bits.pick(bits.some(here), here, free)

    def place(carry: tuple[Array, Array, Board, Array]) -> tuple[Array, Array, Board, Array]:
        left, places, free, number = carry
        slot = bits.lowest(left)
        cells = suited(free, slot)
        index = bits.select_cell(cells, bits.below(bits.draw(words, PLACE_STREAM, number), bits.count(cells)))
        moves = jnp.where(bits.some(free), slot, u32(0))
        item = u32(1) << E.ALIVE | bits.row_of(index) << E.ROW | bits.col_of(index) << E.COL
        places = (places & ~moves[None]) | roster.put(item, moves, roster.PLACE)
        return left & ~slot, places, free & ~bits.only(bits.cell(index), slot != 0), number + 1

    start = (unseen, state.enemies[: roster.PLACE], free, jnp.int32(0))
    _, places, _, _ = lax.while_loop(lambda carry: jnp.any(carry[0] != 0), place, start)
    return state._replace(enemies=jnp.concatenate([places, state.enemies[roster.PLACE :]]))


def _blocks(state: State, words: Array) -> State:
    """Draw the contents of question blocks, by the rule of a new stage."""
    cells = state.cells
    hidden = layer(cells, C.HIDDEN)
    spawn_costs = jnp.asarray([p.spawn for p in PROGRAMS], jnp.uint32)

    def fill(carry: tuple[Board, Board, Array]) -> tuple[Board, Board, Array]:
        left, planes, number = carry
        here = bits.lowest_cell(left)
        is_data = bits.draw(words, BLOCK_STREAM, 3 * number) & 1
        points = 1 + bits.below(bits.draw(words, BLOCK_STREAM, 3 * number + 1), u32(9))
        program = bits.below(bits.draw(words, BLOCK_STREAM, 3 * number + 2), u32(_PROGRAM_COUNT))
        value = jnp.where(is_data != 0, points, program)
        spawn = jnp.where(is_data != 0, points, spawn_costs[program])
        word = is_data << C.DATA | (1 - is_data) << C.PROGRAM | value << C.VALUE | spawn << C.SPAWN
        planes = planes | Board(*(roster.put(word, half, C.PLANES) for half in here))
        return left & ~here, planes, number + 1

    start = (hidden, bits.empty_like(cells.lo), jnp.int32(0))
    _, drawn, _ = lax.while_loop(lambda carry: jnp.any(bits.some(carry[0])), fill, start)
    covered = blocks(cells) & ~layer(cells, C.SIPHONED)
    cells = removed(cells, (C.DATA, C.PROGRAM, *VALUES, *SPAWNS), hidden) | drawn
    return state._replace(cells=removed(cells, (*AMOUNTS, C.ENERGY), covered))
