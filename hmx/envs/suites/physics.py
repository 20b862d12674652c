"""What Brax and MuJoCo Playground share: both move a `State` of the same five parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from hmx.config.textfile import quoted
from hmx.envs.protocol import Env, settled
from hmx.envs.single import Single, from_single
from hmx.envs.suites.importing import quiet
from hmx.errors import HmxError
from hmx.types import Array, Key

STATE = "state"
"""The part of an observation for the policy; the other parts are images, or for value networks only."""


def make_physics(env_id: str, theirs: Any, max_steps: int) -> Env:
    """Wrap an environment of Brax or Playground as an environment of `hmx`.

    Their wrappers that count steps, repeat actions and reset are left out: those replace the last observation of an
    episode by the first of the next. Here `hmx.envs.autoreset` truncates and resets episodes, each to a new start
    state. Actions are clipped to [-1, 1], the range of their environments, which have no step limit.

    A simulation that leaves the finite numbers has terminated: the step pays nothing if its reward is not finite,
    and the last observation is that before it.

    Raises:
        HmxError: its observations are images.
    """
    key = jax.eval_shape(jax.random.key, 0)
    with quiet():
        seen = jax.eval_shape(lambda key: theirs.reset(jax.random.key_data(key)), key).obs
    if isinstance(seen, Mapping) and STATE not in seen:
        words = f"{env_id} shows {', '.join(map(quoted, seen))}, and networks here take one vector"
        raise HmxError(words, "choose another env.id")

    def reset(key: Key) -> tuple[Any, Array]:
        with quiet():
            # as numbers, since some keep it in their state, and read it more than once
            state = settled(theirs.reset(jax.random.key_data(key)))
        return state, _vector(state.obs)

    def step(before: Any, action: Array, key: Key) -> tuple[Any, Array, Array, Array]:
        own = jax.tree.map(lambda leaf: leaf, before)  # some write into the dicts of the state they are given
        with quiet():
            after = theirs.step(own, jnp.clip(action, -1.0, 1.0))
        state = jax.tree.map(lambda now, then: jnp.asarray(now).astype(then.dtype), after, before)
        obs, reward = _vector(state.obs), jnp.asarray(state.reward, jnp.float32)
        finite = jnp.isfinite(obs).all() & jnp.isfinite(reward)
        paid = jnp.where(jnp.isfinite(reward), reward, 0.0)
        return state, jnp.where(finite, obs, _vector(before.obs)), paid, (state.done > 0) | ~finite

    single = Single(reset, step, action_dim=int(theirs.action_size), step_seconds=float(getattr(theirs, "dt", 0.0)))
    return from_single(env_id, single, max_steps)


def _vector(obs: Any) -> Array:
    vector = obs[STATE] if isinstance(obs, Mapping) else obs
    return jnp.asarray(vector, jnp.float32).reshape(-1)
