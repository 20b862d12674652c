"""The reward of HackMatrix: counts of events times their weights."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
from jaxtyping import Float, Integer

from hmx.config.schema import RewardWeights
from hmx.envs.hackmatrix.rules import Events, State
from hmx.types import Array

STAGE_TABLE = (1, 2, 4, 8, 16, 32, 64, 100)
VICTORY_BASE, VICTORY_PER_SCORE = 500, 100


def quantities(events: Events, after: State) -> dict[str, Integer[Array, ...]]:
    """Return the count that each weight multiplies, by the name of the weight; int32 [E]."""
    stage_worth = jnp.asarray((0, *STAGE_TABLE), jnp.int32)[events.stage_completed]
    collected = (1 << jnp.maximum(0, after.stage - 1)) - 1
    completed = events.stage_completed > 0
    return {
        "step_penalty": events.valid,
        "stage_completion": stage_worth,
        "score_gain": events.score,
        "kills": events.kills,
        "data_siphon": events.data_siphon,
        "distance_shaping": events.distance,
        "victory": events.victory * (VICTORY_BASE + VICTORY_PER_SCORE * after.score),
        "death_penalty": events.died * collected,
        "siphon_death_penalty": events.siphon_death,
        "resource_gain": events.credits + events.energy,
        "resource_holding": jnp.where(completed, after.credits + after.energy, 0),
        "damage_penalty": jnp.maximum(0, -events.hp),
        "hp_recovery": jnp.maximum(0, events.hp),
        "siphon_quality": events.missed_credits + events.missed_energy,
        "program_waste": events.reset_wasted,
    }


def reward_terms(events: Events, after: State, weights: RewardWeights) -> dict[str, Float[Array, ...]]:
    """Return the reward by term, float32 [E], in the order of `RewardWeights`; their sum is the reward."""
    worth = dataclasses.asdict(weights)
    amounts = quantities(events, after)
    return {name: jnp.float32(worth[name]) * amounts[name].astype(jnp.float32) for name in worth}
