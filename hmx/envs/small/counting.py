"""An environment that only counts: observation, mask and reward follow from the step number."""

from __future__ import annotations

import jax.numpy as jnp

from hmx.envs.autoreset import Game, batched
from hmx.envs.protocol import Env, EnvSpec
from hmx.types import Array, Key

NUM_ACTIONS = 4


def make_counting(max_steps: int, length: int = 0) -> Env:
    """Build an environment whose observation is the number of steps so far, which is also the next reward.

    In step n the actions n mod 4 and (n + 1) mod 4 are legal. So a stored transition shows whether observation, mask,
    action and reward belong to the same step. It terminates after `length` steps; at 0 never.
    """
    spec = EnvSpec(
        id="counting",
        obs_shape=(1,),
        num_actions=NUM_ACTIONS,
        max_steps=max_steps,
        reward_terms=("count",),
        action_groups=(("zero", 0, 1), ("other", 1, NUM_ACTIONS)),
        action_names=("zero", "one", "two", "three"),
    )

    def move(step: Array, action: Array, key: Key) -> tuple[Array, dict[str, Array], Array]:
        terminated = step + 1 == length if length else jnp.zeros((), bool)
        return step + 1, {"count": step.astype(jnp.float32)}, terminated

    def legal(step: Array) -> Array:
        return ((jnp.arange(NUM_ACTIONS) - step) % NUM_ACTIONS) < 2

    return batched(spec, Game(lambda key: jnp.int32(0), move, lambda step: step.astype(jnp.float32)[None], legal))
