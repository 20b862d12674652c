"""The goals of the planner on a board, and the way to each of them from every cell."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax

from hmx.envs.hackmatrix.planner.worth import PlannerWeights, energy_worth, program_worth, siphon_worth, spawn_cost
from hmx.envs.hackmatrix.rules import bits
from hmx.envs.hackmatrix.rules.bits import CELLS, SIDE, Array, Board, u32
from hmx.envs.hackmatrix.rules.state import C, State, blocks, layer

ITEM_A, ITEM_B, CROSS, EXIT = range(4)
GOALS = 4
_DISTANCE = 2  # the first plane of the distance, after two of the direction
_FAR = 31
_UNKNOWN_SPAWN = 4  # transmissions that a question block calls, about the mean
PLANES = _DISTANCE + 5
_BACK = (bits.down, bits.up, bits.right, bits.left)


class BoardPlan(NamedTuple):
    """The goals of a batch of games [B]: two data siphons, the best cross to siphon, and the exit."""

    cells: Array  # uint32 [GOALS, B], the cell of each goal
    wanted: Array  # bool [GOALS, B], whether it is worth going there, and can be reached
    way: Board  # uint32 [PLANES, GOALS, B]: the first direction to each goal, and its distance
    gain: Array  # float32 [B], the worth of siphoning the best cross
    stage: Array  # int32 [B], of the games when the plan was made


def make_plan(state: State, weights: PlannerWeights) -> BoardPlan:
    """Return the plan for games [B]."""
    walls, exit_cell = blocks(state.cells), layer(state.cells, C.EXIT)
    items = layer(state.cells, C.ITEM)
    first = Board(bits.lowest(items.lo), jnp.where(items.lo == 0, bits.lowest(items.hi), 0))
    rest = items & ~first
    second = Board(bits.lowest(rest.lo), jnp.where(rest.lo == 0, bits.lowest(rest.hi), 0))
    reached, from_player = _ways(bits.cell(state.pos), ~walls & ~exit_cell)
    distance = _number(from_player, _DISTANCE, PLANES - _DISTANCE)
    gains = _cross_gains(state, weights)
    net = jnp.where(_dense(reached) != 0, gains - weights.way * distance, -99.0)
    best = jnp.argmax(net, axis=0)
    gain = jnp.take_along_axis(gains, best[None], axis=0)[0]
    targets = [first, second, bits.cell(u32(best)), exit_cell]
    goals = Board(jnp.stack([t.lo for t in targets]), jnp.stack([t.hi for t in targets]))
    region = ~(walls | exit_cell)
    open_ = Board(jnp.stack([region.lo] * 3 + [(~walls).lo]), jnp.stack([region.hi] * 3 + [(~walls).hi]))
    seen, way = _ways(goals, open_)
    can = bits.has(seen, state.pos[None])
    fetches = state.stage <= weights.last_fetch
    supply = (state.siphons > 0) | (fetches & bits.some(items))
    useful = jnp.stack([fetches, fetches, supply & (gain > siphon_worth(state.stage, weights)), fetches | True])
    return BoardPlan(
        cells=jnp.stack([bits.index_of(t) for t in targets]),
        wanted=can & useful & bits.some(goals),
        way=way,
        gain=gain,
        stage=state.stage,
    )


def _ways(goals: Board, region: Board) -> tuple[Board, Board]:
    """Grow from goals [...] through a region: the cells reached, and planes [PLANES, ...] of direction and distance."""
    nothing = jnp.zeros((PLANES, *goals.lo.shape), jnp.uint32)

    def grow(carry: tuple[Board, Board, Board, Array]) -> tuple[Board, Board, Board, Array]:
        seen, _, planes, number = carry
        new = bits.around(seen) & region & ~seen
        left, rows = new, [new ^ new] * PLANES
        for direction, back in enumerate(_BACK):
            here = back(seen) & left
            left = left & ~here
            for j in range(_DISTANCE):
                if (direction >> j) & 1:
                    rows[j] = rows[j] | here
        for j in range(PLANES - _DISTANCE):
            rows[_DISTANCE + j] = bits.only(new, (jnp.minimum(number, _FAR) >> j) & 1 != 0)
        added = Board(jnp.stack([r.lo for r in rows]), jnp.stack([r.hi for r in rows]))
        return seen | new, new, planes | added, number + 1

    start = (goals, goals, Board(nothing, nothing), jnp.int32(1))
    seen, _, planes, _ = lax.while_loop(lambda carry: jnp.any(bits.some(carry[1])), grow, start)
    return seen, planes


def direction_to(plan: BoardPlan, goal: Array, pos: Array) -> tuple[Array, Array]:
    """Return the first direction from `pos` [B] to a goal [B], and whether there is a way; both [B]."""
    planes = bits.has(plan.way, pos[None, None]).astype(jnp.int32)
    number = planes[0] + 2 * planes[1]
    there = planes[_DISTANCE:].any(axis=0)
    direction, way = number[0], there[0]
    for i in range(1, GOALS):
        direction = jnp.where(goal == i, number[i], direction)
        way = jnp.where(goal == i, there[i], way)
    return direction, way


def distances(plan: BoardPlan, pos: Array) -> Array:
    """Return the number of steps from `pos` [B] to every goal, int32 [GOALS, B]; 0 if there or without a way."""
    planes = bits.has(plan.way, pos[None, None]).astype(jnp.int32)
    weights = (1 << jnp.arange(PLANES - _DISTANCE)).reshape(-1, 1, 1)
    return (planes[_DISTANCE:] * weights).sum(axis=0)


def remaining(plan: BoardPlan, state: State) -> tuple[Array, Array]:
    """Return which goals are still wanted, bool [GOALS, B], and the steps of a tour over them, float32 [B]."""
    items = layer(state.cells, C.ITEM)
    a, b = (plan.wanted[i] & bits.has(items, plan.cells[i]) for i in (ITEM_A, ITEM_B))
    siphons = (state.siphons > 0) | a | b
    cross = plan.wanted[CROSS] & siphons & ~bits.has(layer(state.cells, C.CENTER), plan.cells[CROSS])
    here = distances(plan, state.pos)
    from_goal = [distances(plan, plan.cells[i]) for i in (ITEM_A, ITEM_B, CROSS)]
    last = jnp.where(cross, from_goal[CROSS][EXIT], 0)

    def end(start: Array) -> Array:
        return jnp.where(cross, start[CROSS] + last, start[EXIT])

    via_a, via_b = end(from_goal[ITEM_A]), end(from_goal[ITEM_B])
    between = from_goal[ITEM_A][ITEM_B]
    both = jnp.minimum(here[ITEM_A] + between + via_b, here[ITEM_B] + between + via_a)
    one = jnp.where(a, here[ITEM_A] + via_a, jnp.where(b, here[ITEM_B] + via_b, end(here)))
    steps = jnp.where(a & b, both, one)
    return jnp.stack([a, b, cross, plan.wanted[EXIT]]), steps.astype(jnp.float32)


def _dense(board: Board) -> Array:
    """Return a set of cells as int32 [36, B]."""
    index = jnp.arange(CELLS // 2, dtype=jnp.uint32)[:, None]
    return jnp.concatenate([(half[None] >> index) & 1 for half in board]).astype(jnp.int32)


def _number(cells: Board, start: int, width: int) -> Array:
    return sum((_dense(layer(cells, start + j)) << j for j in range(width)), jnp.int32(0))


def _over_cross(values: Array) -> Array:
    """Return the sum over the cross of every cell, [36, B]."""
    board = values.reshape(SIDE, SIDE, -1)
    padded = jnp.pad(board, ((1, 1), (1, 1), (0, 0)))
    total = board + padded[2:, 1:-1] + padded[:-2, 1:-1] + padded[1:-1, 2:] + padded[1:-1, :-2]
    return total.reshape(values.shape)


def _cross_gains(state: State, weights: PlannerWeights) -> Array:
    """Return the worth of siphoning at every cell, float32 [36, B], with what the player sees."""
    cells = state.cells
    open_ = _dense(~layer(cells, C.SIPHONED))
    wall, hidden = _dense(blocks(cells)), _dense(layer(cells, C.HIDDEN))
    known = wall * (1 - hidden) * open_
    data, program = _dense(layer(cells, C.DATA)) * known, _dense(layer(cells, C.PROGRAM)) * known
    value, spawn = _number(cells, C.VALUE, 5), _number(cells, C.SPAWN, 4) * known
    amount = _number(cells, C.AMOUNT, 2) * open_ * (1 - wall)
    each = program_worth(state.stage)
    offered = jnp.take_along_axis(each, jnp.minimum(value, each.shape[0] - 1), axis=0)
    new = program * (1 - ((state.owned[None] >> value.astype(jnp.uint32)) & 1).astype(jnp.int32))
    unit = jnp.where(_dense(layer(cells, C.ENERGY)) != 0, energy_worth(state, weights)[None], weights.credit)
    gains = amount * unit + data * value * weights.score + new * offered + hidden * open_ * weights.unknown
    called = _over_cross(spawn + _UNKNOWN_SPAWN * hidden * open_)
    return _over_cross(gains) - spawn_cost(called, weights)
