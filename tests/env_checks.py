"""The checks of `hmx check-env` as an assertion, and environments that tests change."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from hmx.envs.checks.problems import Walk
from hmx.envs.checks.run import run_checks
from hmx.envs.protocol import Env
from hmx.types import Timestep


def check_env(env: Env, **options: int | float | Env) -> Walk:
    """Assert that an environment passes every check, and return what was played."""
    found = run_checks(env, **options)
    assert not found.failed, "\n".join(f"{result.check}: {result.detail}" for result in found.failed)
    return found.walk


def with_info(env: Env, describe: Callable[[Timestep], dict[str, Any]]) -> Env:
    """The same environment, which reports this of each timestep."""

    def told(function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any) -> Any:
            state, timestep = function(*args)
            return state, timestep._replace(info=describe(timestep))

        return wrapped

    return env._replace(reset=told(env.reset), step=told(env.step))


def trailing(env: Env) -> Env:
    """The same environment with the batch on the trailing axis of its state."""

    def moved(state: Any, source: int, target: int) -> Any:
        return jax.tree.map(partial(jnp.moveaxis, source=source, destination=target), state)

    def reset(keys: Any) -> Any:
        state, timestep = env.reset(keys)
        return moved(state, 0, -1), timestep

    def step(state: Any, action: Any, keys: Any) -> Any:
        state, timestep = env.step(moved(state, -1, 0), action, keys)
        return moved(state, 0, -1), timestep

    return Env(env.spec._replace(state_axis=-1), reset, step)
