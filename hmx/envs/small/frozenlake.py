"""FrozenLake 8x8: cross a frozen lake without falling into a hole."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hmx.envs.autoreset import BatchState, Game, batched
from hmx.envs.protocol import Env, EnvSpec
from hmx.types import Array, Key

SIDE = 8
LAKE = (
    "SFFFFFFF",
    "FFFFFFFF",
    "FFFHFFFF",
    "FFFFFHFF",
    "FFFHFFFF",
    "FHHFFFHF",
    "FHFFHFHF",
    "FFFHFFFG",
)
ACTIONS = ("left", "down", "right", "up")


def _describe(state: BatchState) -> dict[str, Any]:
    """Return the map with the position of the only agent in the batch."""
    row, col = divmod(int(state.core[0]), SIDE)
    return {"map": [line[:col] + "@" + line[col + 1 :] if i == row else line for i, line in enumerate(LAKE)]}


def make_frozenlake(max_steps: int, slippery: bool) -> Env:
    """Build the standard 8x8 map (Farama Gymnasium, FrozenLake-v1); the observation is the cell, one-hot of 64.

    Reaching the goal pays 1; the goal and the holes end the episode. On slippery ice the move goes in the intended
    direction or to either side of it, each with probability 1/3. Moves into the border have no effect.
    """
    spec = EnvSpec(
        id="frozenlake-slippery" if slippery else "frozenlake",
        obs_shape=(SIDE * SIDE,),
        num_actions=len(ACTIONS),
        max_steps=max_steps,
        reward_terms=("goal",),
        action_names=ACTIONS,
        describe=_describe,
        render=lambda state: "\n".join(_describe(state)["map"]),
    )
    # NumPy: the tables are constants of the compiled program, not arrays on a device
    letters = np.array([list(row) for row in LAKE]).reshape(-1)
    is_hole, is_goal = letters == "H", letters == "G"
    step_of = np.array([[0, -1], [1, 0], [0, 1], [-1, 0]])

    def move(cell: Array, action: Array, key: Key) -> tuple[Array, dict[str, Array], Array]:
        turn = jax.random.randint(key, (), -1, 2) if slippery else 0
        row_col = jnp.stack(jnp.divmod(cell, SIDE)) + jnp.asarray(step_of)[(action + turn) % len(ACTIONS)]
        row, col = jnp.clip(row_col, 0, SIDE - 1)
        cell_tp1 = (row * SIDE + col).astype(jnp.int32)
        goal = jnp.asarray(is_goal)[cell_tp1]
        return cell_tp1, {"goal": goal.astype(jnp.float32)}, goal | jnp.asarray(is_hole)[cell_tp1]

    return batched(spec, Game(lambda key: jnp.int32(0), move, lambda cell: jax.nn.one_hot(cell, SIDE * SIDE)))
