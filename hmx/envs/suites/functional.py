"""What suites whose environments are functions share: Craftax, navix, XLand-MiniGrid and Jumanji.

The function of each suite builds `extra/NAME` as a `Single` of `hmx.envs.single`, whose episodes are truncated after
`max_steps` steps, or at the environment's own limit where that is shorter. It raises an HmxError if the package is
missing, has no such environment, or the environment cannot be built.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from hmx.envs.protocol import Env
from hmx.envs.single import Single, from_single
from hmx.types import Array, Key

NEVER = 1 << 30
"""Replaces the step limit of a suite that reports it as a termination: `hmx.envs.autoreset` truncates."""


def one_hot(cells: Array, sizes: tuple[int, ...]) -> Array:
    """Return the vector of a grid `[H, W, K]` whose K numbers per cell are categories of the given sizes."""
    return jnp.concatenate([jax.nn.one_hot(cells[..., i], size).reshape(-1) for i, size in enumerate(sizes)])


def built(env_id: str, single: Single, max_steps: int) -> Env:
    """Build the environment, whose keys are given as numbers, since these suites keep them in their states."""

    def reset(key: Key) -> Any:
        return single.reset(jax.random.key_data(key))

    def step(state: Any, action: Array, key: Key) -> Any:
        return single.step(state, action, jax.random.key_data(key))

    return from_single(env_id, single._replace(reset=reset, step=step, costly_reset=True), max_steps)
