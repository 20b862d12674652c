"""Siphoning: the yield of a cross, and of better positions."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from hmx.envs.hackmatrix.rules import bits, roster
from hmx.envs.hackmatrix.rules.bits import Array, Board, u32
from hmx.envs.hackmatrix.rules.state import AMOUNTS, SPAWNS, VALUES, C, State, blocks, layer, with_layers


class Gains(NamedTuple):
    """What siphons yield, and what better positions would have; int32 [B] unless stated otherwise."""

    score: Array
    programs: Array  # uint32, bit k for program k
    transmissions: Array  # that it calls
    credits: Array
    energy: Array
    missed_credits: Array  # additional ones at a better position
    missed_energy: Array


def _numbers(planes: Array, names: range) -> Array:
    """Return the numbers of cells from some of their planes, uint32 [CELLS, B]."""
    shifts = jnp.arange(len(names), dtype=jnp.uint32)[:, None, None]
    return (planes[names.start : names.stop] << shifts).sum(axis=0, dtype=jnp.uint32)


def _cross_sums(values: Array) -> Array:
    """Return the sums of numbers up to 3 over the cross of each cell, float32 [CELLS, B]; exact, even in bfloat16."""
    row, col = np.divmod(np.arange(bits.CELLS), bits.SIDE)
    distance = np.abs(row[:, None] - row) + np.abs(col[:, None] - col)
    return jnp.asarray(distance <= 1, jnp.float32) @ values.astype(jnp.float32)


def _set_of(numbers: Array, where: Array) -> Array:
    """Return the numbers of the cells in `where` as bits of a word, uint32 [B]."""
    word: Array = lax.reduce(jnp.where(where, u32(1) << numbers, u32(0)), u32(0), lax.bitwise_or, (0,))
    return word


def _sum(numbers: Array, where: Array) -> Array:
    return jnp.where(where, numbers, 0).sum(axis=0, dtype=jnp.int32)


def _gains(cells: Board, pos: Array, owned: Array) -> Gains:
    """Return the gains of a siphon at `pos`, one number per cell: few games siphon in a step.

    A position is better if it is not a block and yields the same data values and unowned programs, no less of either
    resource and more of one; if the player's cross holds data or unowned programs, the other cross must hold all of its
    open blocks.
    """
    index = jnp.arange(bits.HALF, dtype=jnp.uint32)[:, None]
    planes = jnp.concatenate([(half[:, None] >> index[None]) & 1 for half in cells], axis=1)
    data, program, siphoned, energy = (planes[i] != 0 for i in (C.DATA, C.PROGRAM, C.SIPHONED, C.ENERGY))
    walls, value = data | program, _numbers(planes, VALUES)
    player = jnp.arange(bits.CELLS, dtype=jnp.uint32)[:, None] == pos[None]
    reach = (_cross_sums(player) > 0) & ~siphoned
    inside = ~jnp.any(player & walls, axis=0)
    programs = _set_of(value, program & reach)
    unowned = jnp.where(inside, programs & ~owned, 0)
    data_here = data & reach & inside[None]
    fixed = jnp.any(data_here, axis=0) | (unowned != 0)

    needed = walls & reach & fixed[None]
    extra = ~siphoned & ((data & ~data_here) | (program & ((owned | unowned)[None] >> value & 1 == 0)))
    candidates = ~walls & (_cross_sums(needed) == needed.sum(axis=0)[None]) & (_cross_sums(extra) == 0)

    amount = jnp.where(siphoned | walls, 0, _numbers(planes, AMOUNTS))
    sums = [_cross_sums(jnp.where(energy == kind, amount, 0)) for kind in (False, True)]
    more = [s - jnp.where(player & ~walls, s, 0).sum(axis=0, keepdims=True) for s in sums]
    better = candidates & (more[0] >= 0) & (more[1] >= 0) & (more[0] + more[1] > 0)
    return Gains(
        _sum(value, data & reach),
        programs,
        _sum(_numbers(planes, SPAWNS), walls & reach),
        _sum(amount, reach & ~energy),
        _sum(amount, reach & energy),
        *(jnp.where(better, m, 0).max(axis=0).astype(jnp.int32) for m in more),
    )


def gained(state: State, condition: Array) -> Gains:
    """Return the gains of a siphon in the games where `condition` [B] holds, zeros elsewhere."""
    none = jnp.zeros_like(state.hp)
    lanes = roster.lanes_of(len(none))
    start = Gains(none, u32(none), none, none, none, none, none)
    board = (state.cells, state.pos, state.owned)
    return roster.for_few(condition, lanes, lambda few: _gains(*few), board, start)


def siphon(state: State, condition: Array, gains: Gains) -> State:
    """Apply the siphon action in the games where `condition` [B] holds."""
    cells, player = state.cells, bits.cell(state.pos)
    reach = bits.only(bits.cross(player) & ~layer(cells, C.SIPHONED), condition)
    walls = blocks(cells)
    block, ground = reach & walls, reach & ~walls
    changes = {
        int(C.HIDDEN): layer(cells, C.HIDDEN) & ~block,
        int(C.SIPHONED): layer(cells, C.SIPHONED) | reach,
        int(C.CENTER): layer(cells, C.CENTER) | bits.only(player, condition),
        **{plane: layer(cells, plane) & ~block for plane in SPAWNS},
        **{plane: layer(cells, plane) & ~ground for plane in (*AMOUNTS, int(C.ENERGY))},
    }
    one = condition.astype(jnp.int32)
    return state._replace(
        cells=with_layers(cells, changes),
        score=state.score + gains.score,
        owned=state.owned | gains.programs,
        pending=state.pending + gains.transmissions,
        credits=state.credits + gains.credits,
        energy=state.energy + gains.energy,
        siphons=state.siphons - one,
        interval=jnp.where(condition, jnp.maximum(4, state.interval - 1), state.interval),
        next_scheduled=state.next_scheduled + 5 * one,
    )


def reduce_spawns(state: State, condition: Array) -> State:
    """REDUC: the spawn count of every block not yet siphoned, minus one, not below 0."""
    cells = state.cells
    borrow = bits.only(reducible(state), condition)
    changes = {}
    for plane in SPAWNS:
        number = layer(cells, plane)
        changes[plane] = number ^ borrow
        borrow = borrow & ~number
    return state._replace(cells=with_layers(cells, changes))


def reducible(state: State) -> Board:
    """Return blocks not yet siphoned whose spawn count is above 0."""
    cells = state.cells
    counted = blocks(cells) ^ blocks(cells)
    for plane in SPAWNS:
        counted = counted | layer(cells, plane)
    return counted & blocks(cells) & ~layer(cells, C.SIPHONED)
