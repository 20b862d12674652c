"""Environments of gymnax (github.com/RobertTLange/gymnax), version 1.0 or newer, behind the contract of `hmx.envs`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hmx.config.extras import install, needed
from hmx.config.textfile import quoted
from hmx.envs.protocol import Env, Quantity
from hmx.envs.single import Single, from_single, joined, named
from hmx.errors import ExitCode, HmxError
from hmx.types import Array, Key

GymnaxLike = Any
Shown = Array | dict[str, Array]


def make_gymnax(env_id: str, max_steps: int) -> Env:
    """Build `gymnax/NAME` with gymnax's default parameters.

    Observations are flattened to float32 `[F]`, apart from images `[H, W, C]`. Discrete actions are those of gymnax;
    actions of a box are scaled from [-1, 1] to its limits. `hmx.envs.autoreset` truncates and resets episodes, and
    keeps the final observation of each.

    Raises:
        HmxError: gymnax is missing or too old, there is no such environment, or no network here supports its kind of
            actions.
    """
    with needed("gymnax"):
        import gymnax
    # since 1.0 environments distinguish termination and truncation
    if not hasattr(gymnax.environments.environment.Environment, "is_truncated"):
        raise HmxError("the gymnax that is installed is older than 1.0", install("gymnax"))
    name = named(env_id, list(gymnax.registered_envs))
    try:
        guest, params = gymnax.make(name)
    except OSError as error:  # MNISTBandit downloads its images
        words = f"{env_id} cannot be built: {quoted(str(error))}"
        raise HmxError(words, "it needs the network the first time", ExitCode.ARTEFACT) from error
    return from_single(env_id, as_single(env_id, guest, params), max_steps)


def as_single(env_id: str, guest: GymnaxLike, params: GymnaxLike) -> Single:
    """Return the functions of an object like those of gymnax, also of one that is not in its registry.

    Args:
        env_id: for error messages.
        guest: has `reset_env(key, params)`, `step_env(key, state, action, params)` and `action_space(params)`.
        params: its parameters; `max_steps_in_episode` is its own step limit, if it has one.

    Raises:
        HmxError: its actions are of a kind that no network here takes.
    """
    num_actions, quantities, as_theirs = _actions(env_id, guest.action_space(params))

    def reset(key: Key) -> tuple[Any, Shown]:
        obs, state = guest.reset_env(key, params)
        return state, _plain(obs)

    def step(state: Any, action: Array, key: Key) -> tuple[Any, Shown, Array, Array]:
        # step_env, not step: the latter would replace a finished episode by a new one here already
        obs, state, reward, terminated, _ = guest.step_env(key, state, as_theirs(action), params)
        return state, _plain(obs), jnp.reshape(reward, ()), jnp.reshape(terminated, ())

    limit = int(getattr(params, "max_steps_in_episode", 0))
    return Single(reset, step, num_actions, len(quantities), limit, action_quantities=quantities)


def _plain(obs: Any) -> Shown:
    """Return an observation as one array, or as a dict of named ones."""
    if isinstance(obs, dict):
        return obs
    leaves = jax.tree.leaves(obs)
    return jnp.asarray(leaves[0]) if len(leaves) == 1 else joined(leaves)


def _actions(env_id: str, space: Any) -> tuple[int, tuple[Quantity, ...], Callable[[Array], Array]]:
    """Return the number of discrete actions, the numbers of a continuous one, and a conversion to gymnax."""
    if hasattr(space, "n"):
        return int(space.n), (), lambda action: action
    if not (hasattr(space, "low") and hasattr(space, "high")):
        raise HmxError(f"{env_id} takes actions that are neither one choice nor a box", "choose another env.id")
    shape = tuple(space.shape)
    low, high = (np.broadcast_to(np.asarray(x, np.float32), shape) for x in (space.low, space.high))
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise HmxError(f"{env_id} takes actions without limits, and policies here need some", "choose another env.id")

    def scaled(action: Array) -> Array:
        unit = 0.5 * (jnp.clip(action, -1.0, 1.0) + 1.0)
        return jnp.asarray(low) + unit.reshape(shape) * jnp.asarray(high - low)

    limits = zip(low.ravel().tolist(), high.ravel().tolist(), strict=True)
    return 0, tuple(Quantity(f"action_{i}", "", *ends) for i, ends in enumerate(limits)), scaled
