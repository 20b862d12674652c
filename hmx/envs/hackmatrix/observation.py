"""The observation of HackMatrix: packed words and their float view.

A packed observation is 67 uint32 words: two for each of 29 bit planes of the board, then nine numbers of the player.
Rollouts store it and networks decode it. It is 23 times smaller than the 1,545 floats that it represents. A counted one
has five more: the score and what else a player can count, which the original game does not observe.
"""

from __future__ import annotations

import enum
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from hmx.envs.hackmatrix.entry import ObsKind
from hmx.envs.hackmatrix.rules import bits, roster
from hmx.envs.hackmatrix.rules.bits import CELLS, HALF, SIDE, Board, u32
from hmx.envs.hackmatrix.rules.generate import FIRST_INTERVAL
from hmx.envs.hackmatrix.rules.state import AMOUNTS, CRYPTOG, SPAWNS, VALUES, C, E, State, T, blocks, layer
from hmx.types import Array

PROGRAM_COUNT = 23
CHANNELS = 42
_FIRST_PROGRAM_CHANNEL = 12
FLAT_SIZE = 10 + PROGRAM_COUNT + CELLS * CHANNELS


class V(enum.IntEnum):
    """Planes of the visible board."""

    ENEMY = 0
    TYPE = 1  # two bits
    HP = 3  # two bits
    STUNNED = 5
    FROM_SIPHON = 6
    DATA = 7
    PROGRAM = 8
    QUESTION = 9
    BLOCK_SIPHONED = 10
    VALUE = 11  # five bits: points or program
    SPAWN = 16  # four bits
    TIMER = 20  # three bits, at most 4
    AMOUNT = 23  # two bits
    ENERGY = 25
    ITEM = 26
    EXIT = 27
    CENTER = 28
    PLANES = 29


PLAYER_WORDS = ("pos", "hp", "credits", "energy", "stage", "siphons", "attack", "flags", "owned")
COUNTS = {"score": 10, "turns_until_scheduled": FIRST_INTERVAL, "interval": FIRST_INTERVAL, "step": 1, "atk_uses": 2}
"""The words that a counted observation adds, and the numbers that a network reads as 1."""
WORDS = 2 * int(V.PLANES) + len(PLAYER_WORDS)
COUNTED_WORDS = WORDS + len(COUNTS)


def _scatter(rosters: list[Array], wanted: list[list[Array]]) -> list[list[Board]]:
    """Return boards of slot properties, for each roster: a cell has the properties of the first slot on it.

    Args:
        rosters: planes, uint32 [P, B].
        wanted: the properties of each roster's slots, as slot masks [B].
    """
    most = max(len(masks) for masks in wanted)
    places = jnp.stack([planes[: roster.PLACE] for planes in rosters], axis=1)
    none = jnp.zeros_like(places[0, 0])
    words = jnp.stack([jnp.stack(masks + [none] * (most - len(masks))) for masks in wanted], axis=1)
    last = roster.used_slots(places)

    def visit(i: Array, boards: Board) -> Board:
        slot = u32(last - 1 - i)
        here = roster.cell_of(places, slot)
        here = Board(here.lo[None], here.hi[None])
        return (boards & ~here) | bits.only(here, (words >> slot) & 1 != 0)

    found: Board = lax.fori_loop(0, last, visit, bits.empty_like(words))
    return [[Board(found.lo[k, r], found.hi[k, r]) for k in range(len(m))] for r, m in enumerate(wanted)]


def visible_enemies(state: State) -> Array:
    """Return slots of visible enemies: all except cryptogs outside the player's row and column, unless SHOW is on."""
    row, col = bits.row_of(state.pos), bits.col_of(state.pos)
    lined_up = roster.matches(state.enemies, E.ROW, 3, row) | roster.matches(state.enemies, E.COL, 3, col)
    hidden = roster.is_type(state.enemies, CRYPTOG) & ~lined_up & ~roster.mask(state.show)
    return state.enemies[E.ALIVE] & ~hidden


def _timers(planes: Array) -> list[Array]:
    """Return the timers, at most 4, as three slot masks."""
    t = [planes[T.TIMER + j] for j in range(6)]
    four = t[2] | t[3] | t[4] | t[5]
    return [t[0] & ~four, t[1] & ~four, four]


def packed(state: State, obs: ObsKind = "packed") -> Array:
    """Return the words of the option `env.obs`, uint32 [words, E]; for `flat` those of `packed`."""
    e, cells = state.enemies, state.cells
    visible = visible_enemies(state)  # an invisible enemy still hides other items in its cell
    seen = [e[i] & visible for i in (E.ALIVE, E.TYPE, E.TYPE + 1, E.HP, E.HP + 1, E.STUNNED, E.SIPHON)]
    enemy, timer = _scatter([e, state.transmissions], [seen, _timers(state.transmissions)])
    hidden = layer(cells, C.HIDDEN)
    walls = blocks(cells)
    known = walls & ~hidden
    siphoned_block = layer(cells, C.SIPHONED) & walls
    open_ground = ~(walls & ~siphoned_block)
    boards = [
        *enemy,
        layer(cells, C.DATA) & known,
        layer(cells, C.PROGRAM) & known,
        hidden,
        siphoned_block,
        *(layer(cells, plane) & known for plane in VALUES),
        *(layer(cells, plane) & known for plane in SPAWNS),
        *timer,
        *(layer(cells, plane) & open_ground for plane in AMOUNTS),
        layer(cells, C.ENERGY) & open_ground,
        layer(cells, C.ITEM),
        layer(cells, C.EXIT),
        layer(cells, C.CENTER),
    ]
    flags = u32(state.show) | (u32(state.calm) << 1)
    player = [state.pos, state.hp, state.credits, state.energy, state.stage, state.siphons, state.attack]
    words = [b.lo for b in boards] + [b.hi for b in boards] + [u32(x) for x in player] + [flags, state.owned]
    if obs == "counted":
        due = jnp.maximum(state.next_scheduled - state.turn, 0)
        words += [u32(x) for x in (state.score, due, state.interval, state.step_active, state.atk_uses)]
    return jnp.stack(words)


def _player(words: Array) -> Array:
    pos, hp, credit, energy, stage, siphons, attack, flags, _ = (words[..., i] for i in range(len(PLAYER_WORDS)))

    def real(x: Array) -> Array:
        return x.astype(jnp.int32).astype(jnp.float32)

    features = [
        real(bits.row_of(pos)) / 5,
        real(bits.col_of(pos)) / 5,
        real(hp) / 3,
        jnp.minimum(real(credit) / 50, 1),
        jnp.minimum(real(energy) / 50, 1),
        (real(stage) - 1) / 7,
        real(siphons) / 10,
        (real(attack) - 1) / 2,
        real(flags & 1),
        real((flags >> 1) & 1),
    ]
    return jnp.stack(features, axis=-1)


def _programs(words: Array) -> Array:
    index = jnp.arange(PROGRAM_COUNT, dtype=jnp.uint32).reshape((1,) * (words.ndim - 1) + (-1,))
    return ((words[..., WORDS - 1 : WORDS] >> index) & 1).astype(jnp.float32)


def _counts(words: Array) -> Array:
    """Return the counts of a counted observation, [..., 5]; [..., 0] for another one."""
    counts = words[..., WORDS:].astype(jnp.int32).astype(jnp.float32)
    units = np.array([*COUNTS.values()], np.float32)[: counts.shape[-1]]
    return counts / units.reshape((1,) * (words.ndim - 1) + (-1,))


class F(enum.IntEnum):
    """The features of a cell for a network: the planes, with numbers split by what they count.

    No one-hot of 23 programs and no division: a layer learns equally well from bits, and they cost a tenth as much to
    compute.
    """

    VIRUS = 0  # then daemon, glitch, cryptog
    HP = 4
    STUNNED = 6
    FROM_SIPHON = 7
    DATA = 8
    PROGRAM = 9
    QUESTION = 10
    BLOCK_SIPHONED = 11
    POINTS = 12
    NUMBER = 17  # of the program
    SPAWN = 22
    TIMER = 26
    CREDITS = 29
    ENERGY = 31
    ITEM = 33
    EXIT = 34
    CENTER = 35
    MARK = 36  # the player's cell


CELL_FEATURES = F.MARK + 1


def _split_planes(words: Array) -> Array:
    """Return the planes for the network, uint32 [..., 2, CELL_FEATURES - 1]: rows 0 to 2 and rows 3 to 5."""
    halves = words[..., : 2 * V.PLANES].reshape(*words.shape[:-1], 2, V.PLANES)
    p = [halves[..., i] for i in range(V.PLANES)]
    enemy, low, high = p[V.ENEMY], p[V.TYPE], p[V.TYPE + 1]
    planes = [enemy & ~high & ~low, enemy & ~high & low, enemy & high & ~low, enemy & high & low]
    planes += p[V.HP : V.VALUE]
    planes += [p[V.VALUE + j] & p[V.DATA] for j in range(5)]
    planes += [p[V.VALUE + j] & p[V.PROGRAM] for j in range(5)]
    planes += p[V.SPAWN : V.AMOUNT]
    planes += [p[V.AMOUNT + j] & ~p[V.ENERGY] for j in range(2)]
    planes += [p[V.AMOUNT + j] & p[V.ENERGY] for j in range(2)]
    return jnp.stack([*planes, *p[V.ITEM :]], axis=-1)


def _along(size: int, words: Array, axis: int) -> Array:
    """Return 0 to size - 1 along one of two axes between the batch axes and the planes."""
    shape = [1] * (words.ndim + 2)
    shape[words.ndim - 1 + axis] = size
    return jnp.arange(size, dtype=jnp.uint32).reshape(shape)


def board_view(words: Array) -> tuple[Array, Array]:
    """Return player, programs and counts, and all board cells [..., 36, CELL_FEATURES], the player's own marked."""
    batch = words.shape[:-1]
    halves = _split_planes(words)[..., :, None, :]
    seen = (halves >> _along(HALF, words, 1)) & 1
    here = _along(CELLS, words, 0).reshape((1,) * len(batch) + (CELLS, 1)) == words[..., 2 * V.PLANES, None, None]
    seen = jnp.concatenate([seen.reshape(*batch, CELLS, CELL_FEATURES - 1), here.astype(jnp.uint32)], axis=-1)
    scalars = jnp.concatenate([_player(words[..., 2 * V.PLANES :]), _programs(words), _counts(words)], axis=-1)
    return scalars, seen.astype(jnp.float32)


_NEAR, _REACH = 2, SIDE - 1  # all cells up to 2 away in each axis, and the row and column up to the far edge


def _around_player(words: Array) -> Array:
    """Return the cells near the player and in its lines of fire, [..., 37, CELL_FEATURES]; marked if on the board."""
    halves = _split_planes(words)
    halves = jnp.concatenate([halves, jnp.full_like(halves[..., :1], (1 << HALF) - 1)], axis=-1)
    pos = words[..., 2 * V.PLANES].astype(jnp.int32)[..., None, None]
    rows = _along(2 * _REACH + 1, words, 0)[..., 0, :].astype(jnp.int32) + bits.row_of(pos) - _REACH
    strips = jnp.zeros((), jnp.uint32)
    for row in range(SIDE):
        strip = (halves[..., row // 3, :] >> (SIDE * (row % 3))) & ((1 << SIDE) - 1)
        strips = strips | jnp.where(rows == row, strip[..., None, :], u32(0))
    strips = strips << u32(_REACH - bits.col_of(pos))
    middle = strips[..., _REACH - _NEAR : _REACH + _NEAR + 1, None, :]
    near = (middle >> (_along(2 * _NEAR + 1, words, 1) + (_REACH - _NEAR))) & 1
    near = near.reshape(*words.shape[:-1], (2 * _NEAR + 1) ** 2, CELL_FEATURES)
    far = _along(_REACH - _NEAR, words, 0)[..., 0, :]
    own = strips[..., _REACH : _REACH + 1, :]
    column = jnp.concatenate([strips[..., : _REACH - _NEAR, :], strips[..., _REACH + _NEAR + 1 :, :]], axis=-2)
    line = [(own >> far) & 1, (own >> (far + _REACH + _NEAR + 1)) & 1, (column >> _REACH) & 1]
    return jnp.concatenate([near, *line], axis=-2).astype(jnp.float32)


def cells_view(words: Array) -> tuple[Array, Array]:
    """Return the input of the cells network: scalars [..., 33 or 38] and cells [..., 73, CELL_FEATURES].

    First the board, then the cells that matter for the next moves, relative to the player. The
    position relative to the player is then an input, which need not be learned for each of 36 cells.
    """
    scalars, board = board_view(words)
    return scalars, jnp.concatenate([board, _around_player(words)], axis=-2)


def _linear_channels() -> np.ndarray[Any, np.dtype[Any]]:
    """Return the channels that are sums of cell features: float32 [CELL_FEATURES, 42], zero for program one-hots."""
    weights = np.zeros((CELL_FEATURES, CHANNELS), np.float32)

    def number(channel: int, start: int, width: int, unit: float) -> None:
        for j in range(width):
            weights[start + j, channel] = 2**j / unit

    for k in range(4):
        number(k, k, 1, 1)
    number(4, F.HP, 2, 3)
    for channel, feature in ((5, F.STUNNED), (6, F.FROM_SIPHON), (7, F.DATA), (8, F.PROGRAM), (9, F.QUESTION)):
        number(channel, feature, 1, 1)
    number(10, F.POINTS, 5, 9)
    number(11, F.BLOCK_SIPHONED, 1, 1)
    number(35, F.SPAWN, 4, 9)
    number(36, F.TIMER, 3, 4)
    number(37, F.CREDITS, 2, 3)
    number(38, F.ENERGY, 2, 3)
    for channel, feature in ((39, F.ITEM), (40, F.EXIT), (41, F.CENTER)):
        number(channel, feature, 1, 1)
    return weights


def parts(words: Array) -> tuple[Array, Array, Array]:
    """Return player [..., 10], programs [..., 23] and grid [..., 6, 6, 42] of packed observations, float32."""
    _, cells = board_view(words)
    rows = cells.reshape(-1, CELL_FEATURES)
    number = rows[:, F.NUMBER : F.NUMBER + 5] @ (2.0 ** jnp.arange(5))
    channel = jnp.where(rows[:, F.PROGRAM] > 0, _FIRST_PROGRAM_CHANNEL + number, -1.0)[:, None]
    one_hot = channel == jnp.arange(CHANNELS, dtype=jnp.float32)[None]
    grid = rows @ jnp.asarray(_linear_channels()) + one_hot
    player = _player(words[..., 2 * V.PLANES :])
    return player, _programs(words), grid.reshape(*words.shape[:-1], SIDE, SIDE, CHANNELS)


def decode(words: Array) -> Array:
    """Return the flat view of packed observations: player, programs, grid, counts; float32 [..., 1545 or 1550]."""
    player, programs, grid = parts(words)
    cells = grid.reshape(*words.shape[:-1], CELLS * CHANNELS)
    return jnp.concatenate([player, programs, cells, _counts(words)], axis=-1)


def observed(words: Array, obs: ObsKind) -> Array:
    """Return the observation of the only agent, [E, 1, F], from words [F, E] and the option `env.obs`."""
    words = words.T[:, None]
    return decode(words) if obs == "flat" else words
