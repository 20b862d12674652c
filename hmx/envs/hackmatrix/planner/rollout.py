"""Scripted rollouts: how the planner plays on in its thoughts."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from hmx.envs.hackmatrix.planner.plan import CROSS, EXIT, ITEM_A, ITEM_B, BoardPlan, direction_to, distances, remaining
from hmx.envs.hackmatrix.planner.worth import PlannerWeights, owns, program_worth, siphon_worth, worth
from hmx.envs.hackmatrix.rules import Rules, State, bits
from hmx.envs.hackmatrix.rules.bits import MOVES, SIDE, Array, u32
from hmx.envs.hackmatrix.rules.enemies import Occupied, occupied
from hmx.envs.hackmatrix.rules.play import advance
from hmx.envs.hackmatrix.rules.roster import ALL
from hmx.envs.hackmatrix.rules.state import blocks
from hmx.envs.hackmatrix.rules.tables import FIRST_PROGRAM, PROGRAMS, SIPHON, P

LAST_STAGE = 8
WORD_STREAM = 36
_NOTHING = -1  # an action that leaves a game as it is


def shots(state: State, occ: Occupied) -> tuple[Array, Array]:
    """Return the distance of the first target in each direction, 0 without one, and whether it is an enemy; [4, B]."""
    walls = blocks(state.cells)
    stops = walls | occ.enemies | occ.transmissions
    far, enemy = [], []
    for move in MOVES:
        front = bits.cell(state.pos)
        distance, is_enemy = jnp.zeros_like(state.hp), jnp.zeros_like(state.show)
        for k in range(1, SIDE):
            front = move(front)
            waiting, standing = bits.some(front & occ.transmissions), bits.some(front & occ.enemies)
            distance = jnp.where(waiting | standing, k, distance)
            is_enemy = is_enemy | (standing & ~waiting)
            front = front & ~stops
        far.append(distance)
        enemy.append(is_enemy)
    return jnp.stack(far), jnp.stack(enemy)


def scripted(state: State, occ: Occupied, plan: BoardPlan) -> Array:
    """Return the action of the script, int32 [B]: heal, shoot, siphon, or walk towards the next goal."""
    far, enemy = shots(state, occ)
    rank = jnp.where(far > 0, jnp.where(enemy, jnp.where(far == 1, 100, 20 - far), 30), 0)
    shoots = rank.max(axis=0) > 0
    action = jnp.where(shoots, jnp.argmax(rank, axis=0), _NOTHING)

    goals, _ = remaining(plan, state)
    steps = distances(plan, state.pos)
    nearer = jnp.where(goals[ITEM_A] & (~goals[ITEM_B] | (steps[ITEM_A] <= steps[ITEM_B])), ITEM_A, ITEM_B)
    items = goals[ITEM_A] | goals[ITEM_B]
    goal = jnp.where(items, nearer, jnp.where(goals[CROSS], CROSS, EXIT))
    direction, way = direction_to(plan, goal, state.pos)
    direction = _unhurt(state, occ, direction)
    at_cross = (state.pos == plan.cells[CROSS]) & (goal == CROSS) & (state.siphons > 0)
    action = jnp.where(shoots, action, jnp.where(at_cross, SIPHON, jnp.where(way, direction, _NOTHING)))
    cost = PROGRAMS[P.RESET].energy
    heals = owns(state, P.RESET) & (
        (state.energy >= cost) & (state.hp == 1) | (state.energy >= 3 * cost) & (state.hp == 2)
    )
    return jnp.where(heals, FIRST_PROGRAM + P.RESET, action).astype(jnp.int32)


def _unhurt(state: State, occ: Occupied, direction: Array) -> Array:
    """Return the direction, or the first one that does not end next to an enemy if it does."""
    open_ = ~(blocks(state.cells) | occ.enemies | occ.transmissions)
    beside = bits.around(occ.enemies)
    targets = [move(bits.cell(state.pos)) & open_ for move in MOVES]
    safe = jnp.stack([bits.some(target & ~beside) for target in targets])
    is_safe = jnp.zeros_like(state.show)
    for i in range(4):
        is_safe = is_safe | ((direction == i) & safe[i])
    return jnp.where(is_safe | ~safe.any(axis=0), direction, jnp.argmax(safe, axis=0))


def rollout(
    state: State, first: Array, words: Array, plan: BoardPlan, weights: PlannerWeights, rules: Rules, depth: int
) -> Array:
    """Return the worth of positions after an action and the script, float32 [B].

    Args:
        state: games [B], without hidden parts of the true games.
        first: int32 [B], legal actions.
        words: uint32 [2, B], random words.
        plan: of the games.
        weights: of the worth.
        rules: of the game, without snapshots.
        depth: number of actions.
    """
    fine = jnp.zeros(state.hp.shape, jnp.uint32) + u32(ALL)

    def step(i: Array, carry: tuple[State, Occupied, Array, Array]) -> tuple[State, Occupied, Array, Array]:
        state, occ, done, lived = carry
        action = jnp.where(i == 0, first, scripted(state, occ, plan))
        drawn = jnp.stack([bits.draw(words, WORD_STREAM, 2 * i), bits.draw(words, WORD_STREAM, 2 * i + 1)])
        played = advance(state, jnp.where(done, _NOTHING, action), drawn, rules, fine)
        after = played.state._replace(exit_distance=state.exit_distance)
        over = done | (after.hp == 0) | played.entered | (played.events.victory != 0)
        won = jnp.where(played.events.victory != 0, LAST_STAGE + 1, after.stage)
        return after._replace(stage=won), played.occupied, over, lived + ~over

    start = (state, occupied(state), jnp.zeros_like(state.show), jnp.zeros_like(state.hp))
    state, _, _, lived = lax.fori_loop(0, depth, step, start)
    value = worth(state, plan.stage, program_worth(plan.stage), weights)
    goals, steps = remaining(plan, state)
    each = siphon_worth(plan.stage, weights)
    fetched = (goals[ITEM_A].astype(jnp.float32) + goals[ITEM_B]) * each
    cross = jnp.where(goals[CROSS], plan.gain - each, 0.0)
    ahead = weights.sure * (fetched + cross) - weights.way * steps - weights.no_way * ~goals[EXIT]
    gone = state.stage > plan.stage
    value = value + jnp.where(gone, weights.haste * (depth - lived), 0.0)
    value = value + jnp.where(state.hp == 0, weights.death * weights.fade * lived / depth, 0.0)
    return value + jnp.where(gone | (state.hp == 0), 0.0, ahead) + weights.won * (state.stage > LAST_STAGE)
