"""The worth of a position of HackMatrix, set by hand; the unit is about one hit point."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from hmx.envs.hackmatrix.rules import bits, roster
from hmx.envs.hackmatrix.rules.bits import Array
from hmx.envs.hackmatrix.rules.state import State
from hmx.envs.hackmatrix.rules.tables import PROGRAMS, P

LAST_STAGE = 8


class PlannerWeights(NamedTuple):
    """What things are worth to the planner."""

    hp_two: float = 1.8  # two hit points instead of one
    hp_three: float = 2.7  # three hit points instead of one
    death: float = 12.0  # what a death loses beyond everything owned
    fade: float = 0.3  # of that, for a death at the end of a rollout
    won: float = 20.0
    stage: float = 0.5  # a completed stage
    way: float = 0.15  # a step of the way that remains
    no_way: float = 1.0  # no way to the exit
    haste: float = 0.02  # a step that a rollout saves by leaving the stage sooner
    siphon: float = 1.0  # a data siphon in hand
    sure: float = 0.85  # the share of the gains of the plan that counts before they are made
    credit: float = 0.07
    energy: float = 0.10
    energy_reset: float = 0.25  # more of it for an owner of RESET
    plenty: float = 24.0  # credits or energy beyond this count a quarter
    score: float = 0.02
    attack: float = 4.0  # a point of attack, up to `most_attack`
    most_attack: float = 3.0
    enemy: float = 0.25  # a hit that an enemy still needs
    near: float = 0.25  # more for an enemy next to the player, falling to 0 at four cells
    transmission: float = 0.5
    spawn: float = 0.4  # a transmission called by a siphon
    spawn_square: float = 0.03  # and of the square of their number
    unknown: float = 0.8  # the contents of a question block
    last_fetch: float = 6.0  # the last stage in which data siphons are fetched


PROGRAM_WORTH = {
    P.PUSH: 0.4, P.PULL: 0.1, P.CRASH: 1.5, P.WARP: 0.6, P.POLY: 0.3, P.WAIT: 0.4, P.DEBUG: 1.0, P.ROW: 3.0,
    P.COL: 3.0, P.UNDO: 0.0, P.STEP: 1.2, P.SIPH_PLUS: 1.5, P.EXCH: 2.0, P.SHOW: 0.1, P.RESET: 8.0, P.CALM: 1.0,
    P.D_BOM: 1.2, P.DELAY: 0.8, P.ANTI_V: 1.8, P.SCORE: 0.1, P.REDUC: 0.8, P.ATK_PLUS: 6.0, P.HACK: 1.0,
}  # fmt: skip
"""The worth of owning a program from stage 1 on."""


def stages_left(stage: Array) -> Array:
    """Return the share of the game that is left, float32: 1 in stage 1."""
    return (LAST_STAGE + 1 - stage).astype(jnp.float32) / LAST_STAGE


def program_worth(stage: Array) -> Array:
    """Return the worth of each program, float32 [23, B], for the rest of the game."""
    each = jnp.asarray([PROGRAM_WORTH[P(k)] for k in range(len(PROGRAMS))], jnp.float32)
    return each.reshape(-1, *(1,) * stage.ndim) * (0.25 + 0.75 * stages_left(stage))[None]


def owns(state: State, program: P) -> Array:
    """Return whether the player owns a program, bool [B]."""
    return ((state.owned >> program) & 1) != 0


def siphon_worth(stage: Array, weights: PlannerWeights) -> Array:
    """Return the worth of a data siphon in hand, float32 [B]."""
    return weights.siphon * stages_left(stage)


def energy_worth(state: State, weights: PlannerWeights) -> Array:
    """Return the worth of one energy, float32 [B]."""
    return weights.energy + weights.energy_reset * owns(state, P.RESET)


def spawn_cost(called: Array, weights: PlannerWeights) -> Array:
    """Return the cost of calling a number of transmissions at once."""
    return weights.spawn * called + weights.spawn_square * called * called


def _saturated(amount: Array, weights: PlannerWeights) -> Array:
    most = weights.plenty
    value = amount.astype(jnp.float32)
    return jnp.minimum(value, most) + 0.25 * jnp.maximum(value - most, 0.0)


def _threat(state: State, weights: PlannerWeights) -> Array:
    """Return the cost of the enemies and transmissions on the board, float32 [B]."""
    enemies = roster.unpack_enemies(state.enemies)
    row, col = (x.astype(jnp.int32)[None] for x in (bits.row_of(state.pos), bits.col_of(state.pos)))
    distance = jnp.abs(enemies.row - row) + jnp.abs(enemies.col - col)
    hits = -(-enemies.hp // jnp.maximum(state.attack, 1)[None])
    close = jnp.clip((4 - distance) / 3, 0.0, 1.0)
    each = weights.enemy * hits + weights.near * close
    waiting = roster.size(state.transmissions) + state.pending
    return (each * enemies.alive).sum(axis=0) + weights.transmission * waiting / jnp.minimum(state.attack, 2)


def worth(state: State, stage: Array, owned_worth: Array, weights: PlannerWeights) -> Array:
    """Return the worth of positions [B], without that of the plan.

    Args:
        state: the positions; one whose `stage` is larger than `stage` has just entered the exit.
        stage: int32 [B], the stage of the game when the plan was made.
        owned_worth: float32 [23, B], the worth of each program then.
        weights: of the parts.
    """
    alive = state.hp > 0
    hp = jnp.where(state.hp >= 3, weights.hp_three, jnp.where(state.hp == 2, weights.hp_two, 0.0))
    owned = (((state.owned[None] >> jnp.arange(len(PROGRAMS), dtype=jnp.uint32)[:, None]) & 1) * owned_worth).sum(0)
    left = stages_left(stage)
    total = (
        hp
        + weights.credit * _saturated(state.credits, weights)
        + energy_worth(state, weights) * _saturated(state.energy, weights)
        + siphon_worth(stage, weights) * state.siphons
        + weights.score * state.score
        + weights.attack
        * (0.25 + 0.75 * left)
        * (jnp.minimum(state.attack.astype(jnp.float32), weights.most_attack) - 1)
        + owned
        + weights.stage * (state.stage > stage)
        - _threat(state, weights)
    )
    return jnp.where(alive, total, -weights.death)
