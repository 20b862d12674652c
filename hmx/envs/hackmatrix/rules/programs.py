"""The programs that affect other entities, on the per-slot form of the rosters."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from hmx.envs.hackmatrix.rules import bits, roster
from hmx.envs.hackmatrix.rules.bits import Array, Board
from hmx.envs.hackmatrix.rules.roster import Items
from hmx.envs.hackmatrix.rules.state import (
    DAEMON,
    MAX_HP,
    SPAWNS,
    TIMER_LIMIT,
    VALUES,
    VIRUS,
    C,
    State,
    blocks,
    layer,
    removed,
)
from hmx.envs.hackmatrix.rules.tables import P

POLY_STREAM, WARP_STREAM = 5, 6
_FAR = 1 << 10

REACHING = (P.PUSH, P.PULL, P.CRASH, P.WARP, P.POLY, P.DEBUG, P.ROW, P.COL, P.D_BOM, P.DELAY, P.ANTI_V, P.HACK)


class Reachable(NamedTuple):
    """The part of a state that these programs read and change."""

    enemies: Array
    transmissions: Array
    cells: Board
    pos: Array
    kills: Array  # int32, of this step so far


class _Scene(NamedTuple):
    """A game spread out per slot: rows are slots, the trailing axis is the batch."""

    enemies: Items
    transmissions: Items
    program: Array  # int32 [B], -1 where none of these programs is used
    row: Array  # int32 [1, B], the player's
    col: Array

    def uses(self, *programs: P) -> Array:
        """Return whether one of these is used, bool [1, B]."""
        hit = jnp.zeros(self.program.shape, bool)
        for p in programs:
            hit = hit | (self.program == p)
        return hit[None]


def _distance(row: Array, col: Array, scene: _Scene) -> Array:
    return jnp.abs(row - scene.row) + jnp.abs(col - scene.col)


def _shove(s: _Scene) -> Items:
    """PUSH and PULL: first the target cells of all enemies, then moves in list order."""
    e = s.enemies
    sign = jnp.where(s.uses(P.PUSH), 1, -1)
    sr, sc = jnp.sign(e.row - s.row) * sign, jnp.sign(e.col - s.col) * sign
    best = jnp.full(e.row.shape, _FAR, jnp.int32)
    row, col = e.row, e.col
    for dr, dc, exists in ((sr, sc, True), (sr, 0 * sc, sr != 0), (0 * sr, sc, sc != 0)):
        r, c = e.row + dr, e.col + dc
        inside = (r >= 0) & (r < bits.SIDE) & (c >= 0) & (c < bits.SIDE)
        distance = _distance(r, c, s)
        allowed = exists & inside & (s.uses(P.PUSH) | (distance > 0))
        rank = jnp.where(allowed, -sign * distance, _FAR)
        nearer = rank < best
        best, row, col = jnp.where(nearer, rank, best), jnp.where(nearer, r, row), jnp.where(nearer, c, col)
    wants = (e.alive != 0) & (best < _FAR) & s.uses(P.PUSH, P.PULL)
    moves = roster.first_on_cell(wants, row * bits.SIDE + col)
    return e._replace(row=jnp.where(moves, row, e.row), col=jnp.where(moves, col, e.col))


def _bomb(s: _Scene) -> tuple[Array, Array]:
    """D_BOM: the slot of the daemon that explodes, and the slots in the eight cells around it."""
    e = s.enemies
    daemon = (e.alive != 0) & (e.type == DAEMON) & s.uses(P.D_BOM)
    distance = jnp.where(daemon, _distance(e.row, e.col, s), _FAR)
    slots = jnp.arange(bits.SLOTS, dtype=jnp.int32)[:, None]
    bomb = daemon & (slots == jnp.argmin(distance, axis=0)[None])
    row = jnp.where(bomb, e.row, 0).sum(axis=0)[None]
    col = jnp.where(bomb, e.col, 0).sum(axis=0)[None]
    near = jnp.maximum(jnp.abs(e.row - row), jnp.abs(e.col - col)) == 1
    return bomb, near & jnp.any(bomb, axis=0)[None]


def _on(cells: Board, items: Items) -> Array:
    """Return which slots stand on a set of cells, bool [SLOTS, B]."""
    wide = Board(cells.lo[None], cells.hi[None])
    return bits.has(wide, items.place) & (items.alive != 0)


def _warp_target(s: _Scene, words: Array) -> tuple[Array, Array]:
    """Draw the target of WARP: whether it is an enemy, and its cell index, both [B]."""
    e_count = (s.enemies.alive != 0).sum(axis=0)
    t_count = (s.transmissions.alive != 0).sum(axis=0)
    ticket = bits.below(bits.draw(words, WARP_STREAM), e_count + t_count).astype(jnp.int32)
    is_enemy = ticket < e_count
    slot = jnp.where(is_enemy, ticket, ticket - e_count)
    chosen = jnp.arange(bits.SLOTS, dtype=jnp.int32)[:, None] == slot[None]
    index = jnp.where(is_enemy[None], s.enemies.place, s.transmissions.place)
    return is_enemy, jnp.where(chosen, index, 0).sum(axis=0)


def _remove(items: Items, gone: Array, one_per_cell: Array) -> tuple[Items, Array]:
    """Remove the slots in `gone`; return the kills, at most one per cell if requested, without scheduled enemies."""
    first = roster.first_on_cell(gone, items.place)
    counted = jnp.where(one_per_cell, first, gone) & (items.scheduled == 0)
    alive = jnp.where(gone, 0, items.alive)
    return items._replace(alive=alive), counted.sum(axis=0, dtype=jnp.int32)


def _polymorph(s: _Scene, words: Array) -> Items:
    """POLY: another type for each enemy; damage stays, and enemies without hit points die."""
    e = s.enemies
    slots = jnp.arange(bits.SLOTS, dtype=jnp.uint32)[:, None]
    turn = bits.below(bits.draw(words[:, None], POLY_STREAM, slots), jnp.uint32(3)).astype(jnp.int32)
    kind = (e.type + 1 + turn) % 4
    hp = _max_hp(kind) - (_max_hp(e.type) - e.hp)
    used = s.uses(P.POLY)
    return e._replace(type=jnp.where(used, kind, e.type), hp=jnp.where(used, jnp.maximum(0, hp), e.hp))


def _max_hp(kind: Array) -> Array:
    hp = jnp.full(kind.shape, MAX_HP[VIRUS], jnp.int32)
    return jnp.where(kind == DAEMON, MAX_HP[DAEMON], hp)


def _hits(s: _Scene, cells: Board, attack: Array, splash: Array) -> tuple[Array, Array]:
    """Return the enemies that are hit, and the damage."""
    e = s.enemies
    hit = (
        (s.uses(P.ROW) & (e.row == s.row))
        | (s.uses(P.COL) & (e.col == s.col))
        | (s.uses(P.DEBUG) & _on(blocks(cells), e))
        | (s.uses(P.HACK) & _on(layer(cells, C.SIPHONED), e))
        | (s.uses(P.ANTI_V) & (e.type == VIRUS))
        | splash
    )
    damage = jnp.where(s.uses(P.ANTI_V, P.D_BOM), 1, attack[None])
    return hit & (e.alive != 0), damage


def _clear_blocks(cells: Board, gone: Board) -> Board:
    """CRASH: blocks vanish; the siphoned flag and resources stay."""
    return removed(cells, (C.DATA, C.PROGRAM, C.HIDDEN, *VALUES, *SPAWNS), gone)


def reach(state: State, kills: Array, program: Array, words: Array) -> tuple[State, Array]:
    """Apply the programs in `REACHING`.

    Args:
        state: the games.
        kills: int32 [B], of this step so far.
        program: int32 [B], -1 where none of these programs is used.
        words: uint32 [2, B], the random words of the step.

    Returns:
        The state and the kills.
    """
    part = Reachable(state.enemies, state.transmissions, state.cells, state.pos, kills)
    lanes = roster.lanes_of(len(kills))
    operand = (part, state.attack, program, words)
    part = roster.for_few(program >= 0, lanes, lambda few: _apply(*few), operand, part)
    state = state._replace(enemies=part.enemies, transmissions=part.transmissions, cells=part.cells, pos=part.pos)
    return state, part.kills


def _apply(state: Reachable, attack: Array, program: Array, words: Array) -> Reachable:
    player_row = (bits.row_of(state.pos)).astype(jnp.int32)[None]
    player_col = (bits.col_of(state.pos)).astype(jnp.int32)[None]
    enemies = roster.unpack_enemies(state.enemies)
    transmissions = roster.unpack_transmissions(state.transmissions)
    s = _Scene(enemies, transmissions, program, player_row, player_col)

    s = s._replace(enemies=_shove(s))
    bomb, splash = _bomb(s)
    crash = s.uses(P.CRASH)[0]
    ring = bits.only(bits.ring(bits.cell(state.pos)), crash)
    warp = s.uses(P.WARP)[0]
    to_enemy, target = _warp_target(s, words)
    landing = bits.only(bits.cell(target), warp)
    single = (crash | warp)[None]
    e_gone = _on(ring | bits.only(landing, to_enemy), s.enemies) | bomb
    t_gone = _on(ring | bits.only(landing, ~to_enemy), s.transmissions)
    left, e_kills = _remove(s.enemies, e_gone, single)
    s = s._replace(enemies=left)
    waiting, t_kills = _remove(s.transmissions, t_gone, single)

    hit, damage = _hits(s, state.cells, attack, splash)
    hp = jnp.where(hit, jnp.maximum(0, s.enemies.hp - damage), s.enemies.hp)
    stunned = jnp.where(hit, 1, s.enemies.stunned)
    s = s._replace(enemies=s.enemies._replace(hp=hp, stunned=stunned))
    s = s._replace(enemies=_polymorph(s, words))
    dead = (s.enemies.alive != 0) & (s.enemies.hp == 0)
    survivors, hit_kills = _remove(s.enemies, dead, jnp.zeros_like(single))

    timer = jnp.where(s.uses(P.DELAY), jnp.minimum(TIMER_LIMIT, waiting.hp + 3), waiting.hp)
    return Reachable(
        enemies=roster.pack_enemies(survivors),
        transmissions=roster.pack_transmissions(waiting._replace(hp=timer)),
        cells=_clear_blocks(state.cells, ring & blocks(state.cells)),
        pos=jnp.where(warp, target.astype(jnp.uint32), state.pos),
        kills=state.kills + e_kills + t_kills + hit_kills,
    )
