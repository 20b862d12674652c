"""Play an environment at random with NumPy on the host, for checks of what it shows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hmx.env.protocol import Env, EnvState
from hmx.types import Array, Key, Timestep

HostArray = np.ndarray[Any, np.dtype[Any]]


class Walk(NamedTuple):
    """Random play: the first timestep, and per step the action `[T, E, A]` and the timestep `[T, E, ...]`, in NumPy."""

    first: Timestep
    action_t: HostArray
    timestep_tp1: Timestep
    state: EnvState

    @property
    def ended(self) -> HostArray:
        """Return whether each step ended an episode, `[T, E]`."""
        ended: HostArray = np.asarray(self.timestep_tp1.terminated) | np.asarray(self.timestep_tp1.truncated)
        return ended


def play(
    env: Env,
    reset: Callable[[Key], tuple[EnvState, Timestep]],
    step: Callable[[EnvState, HostArray, Key], tuple[EnvState, Timestep]],
    seed: int,
    num_envs: int,
    num_steps: int,
    illegal: bool = False,
) -> Walk:
    """Play random actions; with `illegal`, half of them are illegal ones where there are any.

    Keys and random draws are the same for every environment with these sizes and this seed.
    """
    chooser = np.random.default_rng(seed)
    state, timestep = reset(keys_of(seed, 0, num_envs))
    first = timestep = jax.device_get(timestep)
    played = []
    for t in range(num_steps):
        action = any_action(env, timestep, chooser, illegal)
        state, timestep = step(state, action, keys_of(seed, t + 1, num_envs))
        timestep = jax.device_get(timestep)  # NumPy compiles nothing
        played.append((action, timestep))
    action_t, timestep_tp1 = jax.tree.map(lambda *leaves: np.stack(leaves), *played)
    return Walk(first, action_t, timestep_tp1, state)


def any_action(env: Env, timestep: Timestep, chooser: np.random.Generator, illegal: bool = False) -> HostArray:
    """Draw legal actions, continuous ones sometimes beyond their limits; with `illegal` half of them illegal."""
    legal = np.asarray(timestep.legal)
    if env.spec.action_dim:
        return chooser.uniform(-1.5, 1.5, (*legal.shape[:-1], env.spec.action_dim)).astype(np.float32)
    if illegal:
        turn = (chooser.random(legal.shape[:-1]) < 0.5) & ~legal.all(-1)
        legal = legal ^ turn[..., None]
    action: HostArray = np.where(legal, chooser.random(legal.shape), -1.0).argmax(-1).astype(np.int32)
    return action


@partial(jax.jit, static_argnums=2)
def keys_of(seed: Array, stream: Array, num_envs: int) -> Key:
    """Return the keys `[E]` of the reset (stream 0) or of a step (from 1)."""
    return jax.random.split(jax.random.fold_in(jax.random.key(seed), stream), num_envs)


def with_start(walk: Walk) -> Timestep:
    """Return all timesteps, the reset first, `[1 + T, E, ...]`."""
    joined: Timestep = jax.tree.map(lambda a, b: np.concatenate([a[None], b]), walk.first, walk.timestep_tp1)
    return joined


def place(bad: HostArray | Array, first: int = 0) -> str:
    """Name the first true entry of `[T, E, ...]`, or of `[E, ...]` at step `first`; step 0 is the reset."""
    index = np.argwhere(np.asarray(bad))[0]
    step, env = (first + index[0], index[1]) if bad.ndim > 1 else (first, index[0])
    return f"{f'step {step}' if step else 'the reset'} of environment {env}"


def difference(got: object, wanted: object, tolerance: float = 0.0) -> str | None:
    """Return the path of the first leaf that differs, or None; the path is empty if the structures differ."""
    if not same_structure(got, wanted):
        return ""
    pairs = zip(jax.tree.leaves_with_path(got), jax.tree.leaves(wanted), strict=True)
    return next((jax.tree_util.keystr(path).lstrip(".") for (path, a), b in pairs if not agrees(a, b, tolerance)), None)


def same_structure(a: object, b: object) -> bool:
    """Return whether two pytrees have the same structure."""
    one: object = jax.tree.structure(a)
    return one == jax.tree.structure(b)


def agrees(a: Any, b: Any, tolerance: float) -> bool:
    """Return whether two arrays have the same bits, or differ by no more than the tolerance; NaN equals NaN."""
    if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
        a, b = jax.random.key_data(a), jax.random.key_data(b)
    floats = jnp.issubdtype(a.dtype, jnp.floating)
    if tolerance and floats:
        return np.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
    return np.array_equal(a, b, equal_nan=bool(floats))
