"""The enemy turn: transmissions mature, enemies act, new transmissions appear."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax

from hmx.envs.hackmatrix.rules import bits, paths, roster
from hmx.envs.hackmatrix.rules.bits import SLOTS, Array, Board, u32
from hmx.envs.hackmatrix.rules.history import push
from hmx.envs.hackmatrix.rules.state import GLITCH, VIRUS, E, State, T, blocks

SPAWN_STREAM, ORDER_STREAM = 1, 3


class Occupied(NamedTuple):
    """The cells on which enemies and transmissions stand, derived from the rosters once per step."""

    enemies: Board
    transmissions: Board


def occupied(state: State) -> Occupied:
    """Return both sets, from the rosters."""
    enemies, transmissions = roster.boards(state.enemies, state.transmissions)
    return Occupied(enemies, transmissions)


def adjacent(planes: Array, player: Array) -> Array:
    """Return slots on the four cells next to the player."""
    row, col = bits.row_of(player), bits.col_of(player)
    sides = ((row + 1, col), (row - 1, col), (row, col - 1), (row, col + 1))
    found = u32(0)
    for r, c in sides:
        found = found | roster.at(planes, r, c)
    return found


def mature(state: State, running: Array) -> tuple[State, Array, Array]:
    """Age the transmissions; those that are due are appended to the enemy list.

    Returns:
        The state, the slots of the new enemies (they cannot act yet), and the number that found no slot.
    """
    planes = state.transmissions
    late = u32(0)
    for j in range(1, 6):
        late = late | planes[T.TIMER + j]
    due = planes[T.ALIVE] & ~late & roster.mask(running)
    parted = bits.compress(planes[:, None], jnp.stack([due, planes[T.ALIVE] & ~due]))
    hatched = roster.hatch(parted[:, 0])
    n = roster.size(state.enemies)
    shift = jnp.minimum(n, SLOTS - 1)
    placed = jnp.where((n < SLOTS)[None], hatched << u32(shift)[None], u32(0))
    waiting = _count_down(parted[:, 1], running)
    overflow = jnp.maximum(0, n + roster.size(hatched) - SLOTS)
    state = state._replace(enemies=state.enemies | placed, transmissions=waiting)
    return state, placed[E.ALIVE], overflow


def _count_down(planes: Array, running: Array) -> Array:
    """Subtract one from the timers of all slots at once, by a ripple borrow."""
    borrow = planes[T.ALIVE] & roster.mask(running)
    timers = []
    for j in range(6):
        timers.append(planes[T.TIMER + j] ^ borrow)
        borrow = borrow & ~planes[T.TIMER + j]
    return jnp.concatenate([planes[: T.TIMER], jnp.stack(timers), planes[T.SCHEDULED :]])


class _Acting(NamedTuple):
    """Games in which enemies move one after the other; every leaf is [B] or [lanes]."""

    places: Array  # uint32 [roster.PLACE, B]: the alive, row and column planes of the enemies
    enemies: Board
    waiting: Array  # slots that still have to move
    draws: Array  # int32, number that have moved
    glitches: Array  # slots that walk through blocks
    walls: Board
    transmissions: Board
    player: Array
    words: tuple[Array, Array]


_GOES = 6  # a decision is a word: slot, whether it moves, origin and destination
_FROM, _TO = 8, 16
_NARROW = 8  # once at most one game in this many has movers left, these games are gathered and stepped separately


def _choose(c: _Acting, stream: int | Array) -> Array:
    n = lax.population_count(c.waiting)
    word = bits.draw(jnp.stack(c.words), ORDER_STREAM, u32(stream) * 64 + u32(c.draws))
    slot = bits.select_bit(c.waiting, bits.below(word, n))
    return slot | (roster.index_at(c.places, slot) << _FROM)


def _decide(c: _Acting, chosen: Array) -> Array:
    slot, here = chosen & 31, chosen >> _FROM
    passable = ~bits.only(c.walls, ((c.glitches >> slot) & 1) == 0)
    occupied_cells = c.enemies | c.transmissions
    moves, target = paths.enemy_move(here, c.player, passable, occupied_cells, c.waiting != 0)
    return chosen | (u32(moves) << _GOES) | (bits.index_of(target) << _TO)


def _relocate(c: _Acting, decision: Array) -> _Acting:
    bit = jnp.where(c.waiting != 0, u32(1) << (decision & 31), u32(0))
    moves = ((decision >> _GOES) & 1) != 0
    here, there = (decision >> _FROM) & 63, (decision >> _TO) & 63
    goes = jnp.where(moves, bit, u32(0))
    item = u32(1) << E.ALIVE | bits.row_of(there) << E.ROW | bits.col_of(there) << E.COL
    places = (c.places & ~goes[None]) | roster.put(item, goes, roster.PLACE)
    company = roster.at(c.places, bits.row_of(here), bits.col_of(here)) & ~bit
    left_behind = bits.only(bits.cell(here), moves & (company == 0))
    enemies = (c.enemies & ~left_behind) | bits.only(bits.cell(there), moves)
    return c._replace(places=places, enemies=enemies, waiting=c.waiting & ~bit, draws=c.draws + 1)


def _move_all(games: _Acting, stream: int | Array, leave: int) -> _Acting:
    """Move one waiting enemy after the other until at most `leave` games have any left."""

    def more(c: _Acting) -> Array:
        return (c.waiting != 0).sum() > leave

    def step(c: _Acting) -> _Acting:
        some = jnp.any(c.waiting != 0)
        chosen = roster.once(some, lambda: _choose(c, stream))
        return _relocate(c, roster.once(some, lambda: _decide(c, chosen)))

    return lax.while_loop(more, step, games)


def _act_round(state: State, occ: Occupied, movers: Array, words: Array, stream: int | Array) -> tuple[State, Occupied]:
    """Let the slots in `movers` [B] take one step each, in a fresh random order."""
    games = _Acting(
        places=state.enemies[: roster.PLACE],
        enemies=occ.enemies,
        waiting=movers,
        draws=jnp.zeros_like(state.hp),
        glitches=roster.is_type(state.enemies, GLITCH),
        walls=blocks(state.cells),
        transmissions=occ.transmissions,
        player=state.pos,
        words=(words[0], words[1]),
    )
    lanes = movers.shape[0] // _NARROW
    games = _move_all(games, stream, lanes)
    places, enemies = games.places, games.enemies
    if lanes:
        # Lanes after the last waiting game hold copies of it, whose results are not used.
        def finish(few: _Acting) -> tuple[Array, Board]:
            done = _move_all(few, stream, 0)
            return done.places, done.enemies

        places, enemies = roster.for_few(games.waiting != 0, lanes, finish, games, (places, enemies))
    planes = jnp.concatenate([places, state.enemies[roster.PLACE :]])
    return state._replace(enemies=planes), occ._replace(enemies=enemies)


def act(state: State, occ: Occupied, fresh: Array, running: Array, words: Array) -> tuple[State, Occupied]:
    """Play both steps of the enemies: each enemy that may act attacks if adjacent, and moves otherwise.

    Attacks need no order: an enemy's adjacency changes only by its own moves.
    """
    able = state.enemies[E.ALIVE] & ~fresh & ~state.enemies[E.STUNNED] & roster.mask(running)

    def one_step(carry: tuple[State, Occupied, Array], second: Array) -> tuple[tuple[State, Occupied, Array], None]:
        state, occ, able = carry
        able = able & jnp.where(second != 0, roster.is_type(state.enemies, VIRUS), u32(roster.ALL))
        attackers = able & adjacent(state.enemies, state.pos)
        damage = lax.population_count(attackers).astype(jnp.int32)
        state = state._replace(hp=jnp.maximum(0, state.hp - damage))
        state, occ = _act_round(state, occ, able & ~attackers, words, second)
        return (state, occ, able & ~attackers), None

    (state, occ, _), _ = lax.scan(one_step, (state, occ, able), jnp.arange(2))
    return state, occ


def spawn(
    state: State, occ: Occupied, scheduled: Array, siphoned: Array, plain: Array, words: Array, stream: int
) -> tuple[State, Occupied, Array]:
    """Add transmissions by the spawn rule: scheduled, then siphoned, then plain ones.

    Uniform over the free cells outside the line of fire, or over all free cells; lost if there is no free cell.

    Returns:
        The state, the occupied cells, and how many found a cell but no slot.
    """
    wanted = scheduled + siphoned + plain
    forbidden = blocks(state.cells) | occ.enemies | bits.cell(state.pos)
    line = paths.line_of_fire(state.pos, blocks(state.cells) | occ.enemies)

    def choose(i: Array, cells: Board) -> Array:
        free = ~(forbidden | cells)
        choice = bits.pick(bits.some(free & ~line), free & ~line, free)
        n = bits.count(choice)
        found = (i < wanted) & (n > 0)
        index = bits.select_cell(choice, bits.below(bits.draw(words, stream, 2 * i), n))
        kind = bits.draw(words, stream, 2 * i + 1) & 3
        return index | (kind << 6) | (u32(found) << 8)

    def add(carry: tuple[Array, Array, Board, Array]) -> tuple[Array, Array, Board, Array]:
        i, planes, cells, overflow = carry
        decision = roster.once(jnp.any(i < wanted), lambda: choose(i, cells))
        index, found = decision & 63, ((decision >> 8) & 1) != 0
        slot = lax.population_count(planes[T.ALIVE])
        fits = found & (slot < SLOTS)
        item = (
            u32(1 << T.ALIVE | 1 << T.TIMER)
            | bits.row_of(index) << T.ROW
            | bits.col_of(index) << T.COL
            | ((decision >> 6) & 3) << T.TYPE
            | u32(i < scheduled) << T.SCHEDULED
            | u32((i >= scheduled) & (i < scheduled + siphoned)) << T.SIPHON
        )
        planes = planes | roster.put(item, jnp.where(fits, u32(1) << slot, u32(0)), T.PLANES)
        cells = cells | bits.only(bits.cell(index), fits)
        return i + 1, planes, cells, overflow + (found & ~fits).astype(jnp.int32)

    first = (jnp.int32(0), state.transmissions, occ.transmissions, jnp.zeros_like(wanted))
    _, planes, cells, overflow = lax.while_loop(lambda c: jnp.any(c[0] < wanted), add, first)
    return state._replace(transmissions=planes), occ._replace(transmissions=cells), overflow


def enemy_turn(state: State, due: Array, words: Array) -> tuple[State, Occupied, Array]:
    """Play the enemy turn in the games where `due` [B] holds and STEP does not skip it.

    Returns:
        The state, the occupied cells, and how many entities found no slot.
    """
    running = due & ~state.step_active
    state = state._replace(step_active=state.step_active & ~due, turn=state.turn + running)
    state, fresh, overflow = mature(state, running)
    state, occ = act(state, occupied(state), fresh, running, words)
    scheduled = (running & ~state.calm & (state.turn >= state.next_scheduled)).astype(jnp.int32)
    siphoned = jnp.where(running, state.pending, 0)
    state, occ, lost = spawn(state, occ, scheduled, siphoned, jnp.zeros_like(scheduled), words, SPAWN_STREAM)
    next_scheduled = jnp.where(scheduled != 0, state.turn + state.interval, state.next_scheduled)
    stunned = state.enemies[E.STUNNED] & ~roster.mask(running)
    state = state._replace(
        next_scheduled=next_scheduled,
        pending=state.pending - siphoned,
        enemies=state.enemies.at[E.STUNNED].set(stunned),
    )
    return push(state, running), occ, overflow + lost
