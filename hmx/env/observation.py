"""What a player of HackMatrix sees (rules, section 6), packed in words, and its float view.

A packed observation is 67 uint32 words: two for each of 29 bit planes of the board, then nine numbers of the player.
It is 23 times smaller than the 1,545 floats it stands for, which is what a rollout stores and a network decodes.
"""

from __future__ import annotations

import enum

import jax.numpy as jnp
from jax import lax

from hmx.game import bits, roster
from hmx.game.bits import CELLS, HALF, SIDE, Board, u32
from hmx.game.state import CRYPTOG, C, E, State, T, blocks, layer
from hmx.types import Array

PROGRAM_COUNT = 23
CHANNELS = 42
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
WORDS = 2 * int(V.PLANES) + len(PLAYER_WORDS)


def _scatter(planes: Array, wanted: list[Array], visible: Array) -> tuple[Board, list[Board]]:
    """Boards of slot properties: for each cell those of the first slot on it.

    Args:
        planes: a roster, uint32 [P, B].
        wanted: properties as slot masks [B].
        visible: slots [B] whose properties show; an invisible one still hides those behind it.

    Returns:
        The cells with a visible first slot, and one board per property.
    """

    def visit(i: Array, carry: tuple[Board, list[Board]]) -> tuple[Board, list[Board]]:
        shown, boards = carry
        slot = u32(last - 1 - i)
        here = bits.only(bits.cell(roster.index_at(planes, slot)), ((planes[E.ALIVE] >> slot) & 1) != 0)

        def put(board: Board, word: Array) -> Board:
            return (board & ~here) | bits.only(here, ((word >> slot) & 1) != 0)

        return put(shown, visible), [put(b, w & visible) for b, w in zip(boards, wanted, strict=True)]

    last = roster.used_slots(planes)
    empty = bits.empty_like(planes[0])
    found: tuple[Board, list[Board]] = lax.fori_loop(0, last, visit, (empty, [empty for _ in wanted]))
    return found


def visible_enemies(state: State) -> Array:
    """Slots of enemies that show: all but cryptogs outside the player's row and column, unless SHOW is on."""
    row, col = bits.row_of(state.pos), bits.col_of(state.pos)
    lined_up = roster.matches(state.enemies, E.ROW, 3, row) | roster.matches(state.enemies, E.COL, 3, col)
    hidden = roster.is_type(state.enemies, CRYPTOG) & ~lined_up & ~roster.mask(state.show)
    return state.enemies[E.ALIVE] & ~hidden


def _timers(planes: Array) -> list[Array]:
    """Timers as three slot masks, no more than 4."""
    t = [planes[T.TIMER + j] for j in range(6)]
    four = t[2] | t[3] | t[4] | t[5]
    return [t[0] & ~four, t[1] & ~four, four]


def packed(state: State) -> Array:
    """The observation as words, uint32 [WORDS, E]."""
    e, cells = state.enemies, state.cells
    properties = [e[E.TYPE], e[E.TYPE + 1], e[E.HP], e[E.HP + 1], e[E.STUNNED], e[E.SIPHON]]
    shown, enemy = _scatter(e, properties, visible_enemies(state))
    t = state.transmissions
    _, timer = _scatter(t, _timers(t), t[T.ALIVE])
    hidden = layer(cells, C.HIDDEN)
    walls = blocks(cells)
    known = walls & ~hidden
    siphoned_block = layer(cells, C.SIPHONED) & walls
    open_ground = ~(walls & ~siphoned_block)
    boards = [
        shown,
        *enemy,
        layer(cells, C.DATA) & known,
        layer(cells, C.PROGRAM) & known,
        hidden,
        siphoned_block,
        *(layer(cells, C.VALUE + j) & known for j in range(5)),
        *(layer(cells, C.SPAWN + j) & known for j in range(4)),
        *timer,
        *(layer(cells, C.AMOUNT + j) & open_ground for j in range(2)),
        layer(cells, C.ENERGY) & open_ground,
        layer(cells, C.ITEM),
        layer(cells, C.EXIT),
        layer(cells, C.CENTER),
    ]
    flags = u32(state.show) | (u32(state.calm) << 1)
    player = [state.pos, state.hp, state.credits, state.energy, state.stage, state.siphons, state.attack]
    words = [b.lo for b in boards] + [b.hi for b in boards] + [u32(x) for x in player] + [flags, state.owned]
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


def _grid(words: Array) -> Array:
    shifts = jnp.arange(HALF, dtype=jnp.uint32).reshape((1,) * words.ndim + (HALF,))
    halves = words.reshape(*words.shape[:-1], 2, V.PLANES)
    planes = jnp.swapaxes(halves, -1, -2)[..., None] >> shifts[None]
    bit = (planes & 1).astype(jnp.float32).reshape(*words.shape[:-1], V.PLANES, CELLS)

    def number(start: int, width: int) -> Array:
        value = bit[..., start, :]
        for j in range(1, width):
            value = value + bit[..., start + j, :] * 2**j
        return value

    enemy, kind = bit[..., V.ENEMY, :], number(V.TYPE, 2)
    data, program = bit[..., V.DATA, :], bit[..., V.PROGRAM, :]
    value, amount, is_energy = number(V.VALUE, 5), number(V.AMOUNT, 2), bit[..., V.ENERGY, :]
    channels = [enemy * (kind == k) for k in range(4)]
    channels += [number(V.HP, 2) / 3, bit[..., V.STUNNED, :], bit[..., V.FROM_SIPHON, :]]
    channels += [data, program, bit[..., V.QUESTION, :], data * value / 9, bit[..., V.BLOCK_SIPHONED, :]]
    channels += [program * (value == k) for k in range(PROGRAM_COUNT)]
    channels += [number(V.SPAWN, 4) / 9, number(V.TIMER, 3) / 4]
    channels += [amount * (1 - is_energy) / 3, amount * is_energy / 3]
    channels += [bit[..., V.ITEM, :], bit[..., V.EXIT, :], bit[..., V.CENTER, :]]
    return jnp.stack(channels, axis=-1)


def parts(words: Array) -> tuple[Array, Array, Array]:
    """Player [..., 10], programs [..., 23] and grid [..., 6, 6, 42] of packed observations [..., WORDS], float32."""
    player_words = words[..., 2 * V.PLANES :]
    programs = (
        player_words[..., -1:] >> jnp.arange(PROGRAM_COUNT, dtype=jnp.uint32).reshape((1,) * (words.ndim - 1) + (-1,))
    ) & 1
    grid = _grid(words[..., : 2 * V.PLANES])
    return _player(player_words), programs.astype(jnp.float32), grid.reshape(*words.shape[:-1], SIDE, SIDE, CHANNELS)


def decode(words: Array) -> Array:
    """The flat view of packed observations [..., WORDS]: player, programs, grid; float32 [..., 1545]."""
    player, programs, grid = parts(words)
    return jnp.concatenate([player, programs, grid.reshape(*words.shape[:-1], CELLS * CHANNELS)], axis=-1)
