"""A corridor: walk right to the end; sometimes a step slips."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from hmx.envs.autoreset import Game, batched
from hmx.envs.protocol import Env, EnvSpec
from hmx.types import Array, Key

LENGTH = 8
STEP_COST = -0.01


def make_corridor(max_steps: int, slip: float) -> Env:
    """Build a row of eight cells: start at the left end; the right end pays 1 and ends the episode.

    The observation is the cell, one-hot. At the left wall only `right` is legal. Every step costs 0.01, and
    goes against the action with probability `slip`.
    """
    spec = EnvSpec(
        id="corridor",
        obs_shape=(LENGTH,),
        num_actions=2,
        max_steps=max_steps,
        reward_terms=("goal", "step_cost"),
        action_names=("left", "right"),
        render=lambda state: "".join("@" if i == state.core[0] else "." for i in range(LENGTH - 1)) + "G",
    )

    def move(cell: Array, action: Array, key: Key) -> tuple[Array, dict[str, Array], Array]:
        wish = 2 * action - 1
        drift = jnp.where(jax.random.bernoulli(key, slip), -wish, wish)
        cell_tp1 = jnp.clip(cell + drift, 0, LENGTH - 1)
        at_goal = cell_tp1 == LENGTH - 1
        return cell_tp1, {"goal": at_goal.astype(jnp.float32), "step_cost": jnp.float32(STEP_COST)}, at_goal

    def legal(cell: Array) -> Array:
        return jnp.stack([cell > 0, jnp.ones((), bool)])

    return batched(spec, Game(lambda key: jnp.int32(0), move, lambda cell: jax.nn.one_hot(cell, LENGTH), legal))
