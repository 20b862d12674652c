"""Siphoning: the yield of a cross, and of better positions."""

from __future__ import annotations

import jax.numpy as jnp

from hmx.envs.hackmatrix.rules import bits
from hmx.envs.hackmatrix.rules.bits import MOVES, Array, Board, u32
from hmx.envs.hackmatrix.rules.state import C, State, blocks, layer, with_layers
from hmx.envs.hackmatrix.rules.tables import PROGRAMS

PROGRAM_COUNT = len(PROGRAMS)
Number = list[Board]  # one number per cell, least significant plane first


def _planes(cells: Board, start: int, width: int, where: Board) -> Number:
    return [layer(cells, start + j) & where for j in range(width)]


def total(number: Number) -> Array:
    """Return the sum over all cells, int32 [B]."""
    result = bits.count(number[0])
    for j, p in enumerate(number[1:], start=1):
        result = result + (bits.count(p) << j)
    return result


def value_at(number: Number, cell: Board) -> Array:
    """Return the number of one cell, uint32 [B]; 0 for the empty set."""
    result = jnp.zeros_like(cell.lo)
    for j, p in enumerate(number):
        result = result | (u32(bits.some(p & cell)) << j)
    return result


def _add(a: Number, b: Number, width: int) -> Number:
    zero = a[0] ^ a[0]
    carry, out = zero, []
    for j in range(width):
        x, y = (n[j] if j < len(n) else zero for n in (a, b))
        out.append(x ^ y ^ carry)
        carry = (x & y) | (carry & (x ^ y))
    return out


def _cross_sums(number: Number) -> Number:
    """Return the sum over the cross of each cell: five numbers of two bits make at most 15."""
    result: Number = number
    for move in MOVES:
        result = _add(result, [move(p) for p in number], 4)
    return result


def _at_least(number: Number, bound: Array) -> tuple[Board, Board]:
    """Return cells whose number is >= and > the bound [B]."""
    zero = number[0] ^ number[0]
    greater, equal = zero, ~zero
    for j in reversed(range(len(number))):
        bit = ((bound >> j) & 1) != 0
        greater = greater | (equal & number[j] & bits.only(~zero, ~bit))
        equal = equal & ~(number[j] ^ bits.only(~zero, bit))
    return greater | equal, greater


def _largest(number: Number, among: Board) -> Array:
    """Return the largest number among some cells, int32 [B]."""
    result = jnp.zeros(among.lo.shape, jnp.int32)
    for j in reversed(range(len(number))):
        narrowed = among & number[j]
        found = bits.some(narrowed)
        result = result | (found.astype(jnp.int32) << j)
        among = bits.pick(found, narrowed, among)
    return result


def programs_in(cells: Board, where: Board, player: Board) -> Array:
    """Return the set of programs in the blocks of the player's cross that lie in `where`, one bit each."""
    number = _planes(cells, C.VALUE, 5, where)
    found = jnp.zeros_like(player.lo)
    for cell in (player, *(move(player) for move in MOVES)):
        there = bits.some(cell & where)
        found = found | jnp.where(there, u32(1) << value_at(number, cell), u32(0))
    return found


def _carrying(cells: Board, where: Board, programs: Array) -> Board:
    """Return cells of `where` whose program is in `programs` [B]: a multiplexer tree over the five value planes."""
    zero = where ^ where
    full = ~zero
    leaves = [bits.only(full, ((programs >> k) & 1) != 0) for k in range(PROGRAM_COUNT)]
    leaves += [zero] * (32 - PROGRAM_COUNT)
    for j in range(5):
        chosen = layer(cells, C.VALUE + j)
        leaves = [a ^ ((a ^ b) & chosen) for a, b in zip(leaves[::2], leaves[1::2], strict=True)]
    return leaves[0] & where


def missed(state: State) -> tuple[Array, Array]:
    """Return the additional credits and energy that a better siphon position would have given, int32 [B].

    Better: the same data values and unowned programs, no less of either resource and more of one, at a non-block
    cell; if the player's cross holds data or unowned programs, the other cross must hold all of its open blocks.
    """
    cells, player = state.cells, bits.cell(state.pos)
    walls, open_ = blocks(cells), ~layer(cells, C.SIPHONED)
    inside = ~bits.some(player & walls)
    yields = open_ & bits.only(bits.cross(player), inside)
    data_here, program_here = layer(cells, C.DATA) & yields, layer(cells, C.PROGRAM) & yields
    programs = programs_in(cells, program_here, player) & ~state.owned
    fixed = bits.some(data_here) | (programs != 0)

    candidates = ~walls
    for move in MOVES:
        block = move(player) & walls & open_
        candidates = candidates & bits.pick(fixed & bits.some(block), bits.cross(block), ~(walls ^ walls))
    other_programs = ~(state.owned | programs)
    extra_data = layer(cells, C.DATA) & open_ & ~data_here
    extra_programs = _carrying(cells, layer(cells, C.PROGRAM) & open_, other_programs)
    candidates = candidates & ~bits.cross(extra_data | extra_programs)

    resources = open_ & ~walls
    energy_cells = layer(cells, C.ENERGY)
    credit = _cross_sums(_planes(cells, C.AMOUNT, 2, resources & ~energy_cells))
    energy = _cross_sums(_planes(cells, C.AMOUNT, 2, resources & energy_cells))
    own = [jnp.where(inside, value_at(n, player), 0) for n in (credit, energy)]
    credit_ok, credit_more = _at_least(credit, own[0])
    energy_ok, energy_more = _at_least(energy, own[1])
    better = candidates & credit_ok & energy_ok & (credit_more | energy_more)
    any_better = bits.some(better)

    def gap(number: Number, mine: Array) -> Array:
        return jnp.where(any_better, _largest(number, better) - mine.astype(jnp.int32), 0)

    return gap(credit, own[0]), gap(energy, own[1])


def siphon(state: State, condition: Array) -> State:
    """Apply the siphon action in the games where `condition` [B] holds."""
    cells, player = state.cells, bits.cell(state.pos)
    reach = bits.only(bits.cross(player) & ~layer(cells, C.SIPHONED), condition)
    walls = blocks(cells)
    block = reach & walls
    ground = reach & ~walls
    energy_cells = layer(cells, C.ENERGY)
    spawn = _planes(cells, C.SPAWN, 4, block)
    changes = {
        int(C.HIDDEN): layer(cells, C.HIDDEN) & ~block,
        int(C.SIPHONED): layer(cells, C.SIPHONED) | reach,
        int(C.CENTER): layer(cells, C.CENTER) | bits.only(player, condition),
        int(C.ENERGY): energy_cells & ~ground,
        **{C.SPAWN + j: layer(cells, C.SPAWN + j) & ~block for j in range(4)},
        **{C.AMOUNT + j: layer(cells, C.AMOUNT + j) & ~ground for j in range(2)},
    }
    one = condition.astype(jnp.int32)
    return state._replace(
        cells=with_layers(cells, changes),
        score=state.score + total(_planes(cells, C.VALUE, 5, block & layer(cells, C.DATA))),
        owned=state.owned | programs_in(cells, block & layer(cells, C.PROGRAM), player),
        pending=state.pending + total(spawn),
        credits=state.credits + total(_planes(cells, C.AMOUNT, 2, ground & ~energy_cells)),
        energy=state.energy + total(_planes(cells, C.AMOUNT, 2, ground & energy_cells)),
        siphons=state.siphons - one,
        interval=jnp.where(condition, jnp.maximum(4, state.interval - 1), state.interval),
        next_scheduled=state.next_scheduled + 5 * one,
    )


def reduce_spawns(state: State, condition: Array) -> State:
    """REDUC: the spawn count of every block not yet siphoned, minus one, not below 0."""
    cells = state.cells
    number = [layer(cells, C.SPAWN + j) for j in range(4)]
    borrow = bits.only(reducible(state), condition)
    changes = {}
    for j in range(4):
        changes[C.SPAWN + j] = number[j] ^ borrow
        borrow = borrow & ~number[j]
    return state._replace(cells=with_layers(cells, changes))


def reducible(state: State) -> Board:
    """Return blocks not yet siphoned whose spawn count is above 0."""
    cells = state.cells
    counted = layer(cells, C.SPAWN)
    for j in range(1, 4):
        counted = counted | layer(cells, C.SPAWN + j)
    return counted & blocks(cells) & ~layer(cells, C.SIPHONED)
