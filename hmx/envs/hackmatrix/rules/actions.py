"""The player's action, without the enemy turn."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax

from hmx.envs.hackmatrix.rules import bits, roster
from hmx.envs.hackmatrix.rules.bits import MOVES, SIDE, Array, Board, u32
from hmx.envs.hackmatrix.rules.history import undo
from hmx.envs.hackmatrix.rules.programs import REACHING, reach
from hmx.envs.hackmatrix.rules.siphon import gained, reduce_spawns, siphon
from hmx.envs.hackmatrix.rules.state import C, E, State, T, blocks, layer, with_layers
from hmx.envs.hackmatrix.rules.tables import FIRST_PROGRAM, PROGRAMS, SIPHON, P


class Outcome(NamedTuple):
    """The effects of an action, all [B]."""

    kills: Array
    data_siphon: Array  # bool
    at_exit: Array  # bool: the stage is complete
    missed_credits: Array
    missed_energy: Array
    reset_wasted: Array  # bool


def _step_towards(direction: Array, cells: Board) -> Board:
    """Move each game's cells one step in its own direction; empty without a direction."""
    result = bits.empty_like(direction)
    for i, move in enumerate(MOVES):
        result = result | bits.only(move(cells), direction == i)
    return result


def _target(state: State, direction: Array) -> tuple[Array, Array, Array]:
    """Return the targets in the line of attack.

    Returns:
        The mask of all transmissions and the mask of the first enemy at the first occupied cell (one of them
        empty), and whether anything was found.
    """
    walls = blocks(state.cells)

    def look(_: int, carry: tuple[Board, Array, Array]) -> tuple[Board, Array, Array]:
        front, t_hit, e_hit = carry
        front = _step_towards(direction, front)
        index = bits.index_of(front)
        row, col, there = bits.row_of(index), bits.col_of(index), roster.mask(bits.some(front))
        t_here = roster.at(state.transmissions, row, col) & there
        e_here = roster.at(state.enemies, row, col) & there
        front = bits.only(front & ~walls, (t_here | e_here) == 0)
        return front, t_hit | t_here, e_hit | jnp.where(t_here != 0, u32(0), bits.lowest(e_here))

    nothing = jnp.zeros_like(state.pos)
    _, t_hit, e_hit = lax.fori_loop(0, SIDE - 1, look, (bits.cell(state.pos), nothing, nothing))
    return t_hit, e_hit, (t_hit | e_hit) != 0


def _strike(state: State, t_hit: Array, e_hit: Array) -> tuple[State, Array]:
    """Destroy the transmission or hurt the enemy; survivors are stunned. Returns the kills."""
    first = bits.lowest(t_hit)
    enemies, transmissions = state.enemies, state.transmissions
    slot = lax.population_count(e_hit - 1)
    hp = roster.number(enemies, E.HP, 2, jnp.where(e_hit != 0, slot, u32(0))).astype(jnp.int32)
    remaining = u32(jnp.maximum(0, hp - state.attack))
    dead = jnp.where(remaining == 0, e_hit, u32(0))
    survivor = e_hit & ~dead
    kill = (first & ~transmissions[T.SCHEDULED]) | (dead & ~enemies[E.SCHEDULED])
    rows = [enemies[i] & ~dead for i in range(E.PLANES)]
    for j in range(2):
        bit = jnp.where((remaining >> j) & 1 != 0, survivor, u32(0))
        rows[E.HP + j] = (rows[E.HP + j] & ~survivor) | bit
    rows[E.STUNNED] = rows[E.STUNNED] | survivor
    state = state._replace(enemies=jnp.stack(rows), transmissions=transmissions & ~first[None])
    return state, lax.population_count(kill).astype(jnp.int32)


def _walk(state: State, direction: Array, walks: Array) -> tuple[State, Array, Array]:
    """Move one cell; pick up a data siphon.

    Returns also whether a siphon was picked up and whether the exit was entered.
    """
    here = _step_towards(jnp.where(walks, direction, -1), bits.cell(state.pos))
    items = layer(state.cells, C.ITEM)
    found = bits.some(here & items)
    at_exit = bits.some(here & layer(state.cells, C.EXIT))
    state = state._replace(
        pos=jnp.where(walks, bits.index_of(here), state.pos),
        siphons=state.siphons + found,
        cells=with_layers(state.cells, {int(C.ITEM): items & ~here}),
    )
    return state, found, at_exit


def _pay(state: State, program: Array) -> State:
    """Deduct a program's cost; -1 costs nothing."""
    cost = jnp.asarray([[p.credits for p in PROGRAMS], [p.energy for p in PROGRAMS]], jnp.int32)
    costs = jnp.where((program >= 0)[None], roster.taken(cost, jnp.maximum(program, 0)), 0)
    return state._replace(credits=state.credits - costs[0], energy=state.energy - costs[1])


def _own_effects(state: State, program: Array) -> State:
    """Apply the programs that change only the player and the stage's flags."""

    def used(p: P) -> Array:
        return program == p

    return state._replace(
        step_active=state.step_active | used(P.STEP),
        siphons=state.siphons + used(P.SIPH_PLUS),
        energy=state.energy + 4 * used(P.EXCH),
        show=state.show | used(P.SHOW),
        hp=jnp.where(used(P.RESET), 3, state.hp),
        calm=state.calm | used(P.CALM),
        score=state.score + jnp.where(used(P.SCORE), 8 - state.stage, 0),
        attack=state.attack + used(P.ATK_PLUS),
        atk_uses=state.atk_uses + used(P.ATK_PLUS),
    )


def perform(state: State, action: Array, words: Array) -> tuple[State, Outcome]:
    """Carry out a valid action [B]; -1 does nothing. Rosters may have gaps afterwards."""
    direction = jnp.where((action >= 0) & (action < SIPHON), action, -1)
    siphons = action == SIPHON
    program = jnp.where(action >= FIRST_PROGRAM, action - FIRST_PROGRAM, -1)
    reset_wasted = (program == P.RESET) & (state.hp == 2)

    gains = gained(state, siphons)
    t_hit, e_hit, found = _target(state, direction)
    state, kills = _strike(state, t_hit, e_hit)
    state, data_siphon, at_exit = _walk(state, direction, (direction >= 0) & ~found)
    state = siphon(state, siphons, gains)

    state = _pay(state, program)
    state = _own_effects(state, program)
    state = reduce_spawns(state, program == P.REDUC)
    reaching = jnp.zeros_like(siphons)
    for p in REACHING:
        reaching = reaching | (program == p)
    state, kills = reach(state, kills, jnp.where(reaching, program, -1), words)
    state = undo(state, program == P.UNDO)
    at_exit = at_exit | ((program == P.WARP) & (state.pos == state.exit))
    return state, Outcome(kills, data_siphon, at_exit, gains.missed_credits, gains.missed_energy, reset_wasted)
