"""The position of a game of HackMatrix, as words, and the report of a step.

Everything countable per cell or per roster slot is a bit plane: bit c of a cell plane belongs to cell c, bit k
of a roster plane to slot k, which is also the k-th item of the reference's ordered list. Rosters have no gaps.
Feature axes lead and batch axes trail, so one code serves one game (no batch axis) and many.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hmx.envs.hackmatrix.rules.bits import Array, Board


class Rules(NamedTuple):
    """The static choices of the rules.

    Attributes:
        undo_depth: turn-end snapshots kept; a further one replaces the oldest.
        name: `original`, those of the reference, or `designed` (docs/adr/0003).
    """

    undo_depth: int = 4
    name: Literal["original", "designed"] = "original"


class E(enum.IntEnum):
    """Planes of the enemy roster. Rows and columns are three bits each, types and hit points two."""

    ALIVE = 0
    ROW = 1
    COL = 4
    TYPE = 7
    HP = 9
    STUNNED = 11
    SCHEDULED = 12
    SIPHON = 13
    PLANES = 14


class T(enum.IntEnum):
    """Planes of the transmission roster; the first nine as in `E`, the timer has six bits."""

    ALIVE = 0
    ROW = 1
    COL = 4
    TYPE = 7
    TIMER = 9
    SCHEDULED = 15
    SIPHON = 16
    PLANES = 17


class C(enum.IntEnum):
    """Planes of the cells. A hidden (question) block keeps its true kind in DATA or PROGRAM."""

    DATA = 0
    PROGRAM = 1
    HIDDEN = 2
    ITEM = 3  # a data siphon lies here
    EXIT = 4
    SIPHONED = 5
    CENTER = 6
    VALUE = 7  # five bits: points of a data block, program number of a program block
    SPAWN = 12  # four bits: spawn count of a block
    AMOUNT = 16  # two bits: credits or energy on the cell
    ENERGY = 18  # the amount is energy
    PLANES = 19


VALUES = range(C.VALUE, C.VALUE + 5)
SPAWNS = range(C.SPAWN, C.SPAWN + 4)
AMOUNTS = range(C.AMOUNT, C.AMOUNT + 2)


VIRUS, DAEMON, GLITCH, CRYPTOG = range(4)
ENEMY_TYPES = ("virus", "daemon", "glitch", "cryptog")
MAX_HP = (2, 3, 2, 2)
TIMER_LIMIT = 63
CORNERS = (0, 5, 30, 35)


class State(NamedTuple):
    """One game, or a batch of games along the trailing axis of every leaf."""

    enemies: Array  # uint32 [E.PLANES, *B]
    transmissions: Array  # uint32 [T.PLANES, *B]
    cells: Board  # lo and hi uint32 [C.PLANES, *B]
    pos: Array  # uint32 [*B], cell index of the player
    hp: Array  # int32, like all following fields unless stated otherwise
    credits: Array
    energy: Array
    siphons: Array
    score: Array
    attack: Array
    stage: Array  # 1 to 8
    board_stage: Array  # the stage of this board; UNDO may restore an older one
    turn: Array
    owned: Array  # uint32, bit k for program k
    show: Array  # bool
    calm: Array  # bool
    step_active: Array  # bool
    atk_uses: Array
    interval: Array
    next_scheduled: Array
    pending: Array
    exit: Array  # uint32, the stored exit position
    exit_distance: Array  # a function of cells, pos and exit, kept because every step needs the previous one
    history: Array  # uint32 [undo_depth, words, *B], a ring of snapshots
    history_head: Array  # where the next snapshot goes
    history_count: Array  # number of turns that can be undone


class Events(NamedTuple):
    """The events of one step, as integer counts without rewards. All int32 [*B]."""

    valid: Array  # 1 unless the action was outside the mask
    stage_completed: Array  # number of the stage completed, 0 if none
    victory: Array
    died: Array
    siphon_death: Array  # died next to an enemy that came from a siphon
    score: Array  # change
    kills: Array
    data_siphon: Array  # picked up by walking
    distance: Array  # cells gained towards the exit, never negative
    credits: Array  # net change
    energy: Array
    hp: Array  # net change
    missed_credits: Array  # additional yield of a better siphon position
    missed_energy: Array
    reset_wasted: Array
    undo_stage: Array  # the stage was completed on a board that UNDO restored
    overflow: Array  # entities that found no slot
    program: Array  # number of the program used, -1 if none


def layer(cells: Board, index: int) -> Board:
    """Return one plane of the cells."""
    return Board(cells.lo[index], cells.hi[index])


def blocks(cells: Board) -> Board:
    """Return all cells that hold a block."""
    return layer(cells, C.DATA) | layer(cells, C.PROGRAM)


def with_layers(cells: Board, changes: dict[int, Board]) -> Board:
    """Return the cells with some planes replaced."""

    def joined(half: Array, planes: dict[int, Array]) -> Array:
        parts, start = [], 0
        for i in sorted(planes):
            parts += [half[start:i], planes[i][None]]
            start = i + 1
        return jnp.concatenate([*parts, half[start:]])

    lo = joined(cells.lo, {i: plane.lo for i, plane in changes.items()})
    return Board(lo, joined(cells.hi, {i: plane.hi for i, plane in changes.items()}))


def removed(cells: Board, names: Iterable[int], gone: Board) -> Board:
    """Return the cells with `gone` removed from some planes; it should be cheap, since each plane computes it."""
    chosen = np.zeros((C.PLANES, *(1,) * gone.lo.ndim), bool)
    chosen[list(names)] = True
    gone = Board(gone.lo[None], gone.hi[None])
    return Board(jnp.where(chosen, cells.lo & ~gone.lo, cells.lo), jnp.where(chosen, cells.hi & ~gone.hi, cells.hi))


def where(condition: Array, a: State, b: State) -> State:
    """Return `a` in the games where `condition` [B] holds, else `b`."""

    def choose(x: Array, y: Array) -> Array:
        return jnp.where(condition.reshape((1,) * (x.ndim - condition.ndim) + condition.shape), x, y)

    chosen: State = jax.tree.map(choose, a, b)
    return chosen
