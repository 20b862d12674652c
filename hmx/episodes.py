"""Play episodes: one step of a policy in every environment; the caller chooses what is kept of it.

An environment in JAX is stepped by compiled programs. For a simulator in worker processes the same functions run on the
host (`hmx.runs.simulated`), with a compiled policy. Training has its own step, `hmx.algos.collector`, which also keeps
statistics.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from hmx.envs.protocol import Env, EnvState
from hmx.types import Array, Key, Timestep

Tree = TypeVar("Tree")


class Now(NamedTuple):
    """Where `E` environments are, and what the policy remembers."""

    env_state: EnvState
    obs: Array  # [E, A, *obs_shape]: the observation the next action is chosen from
    legal: Array  # [E, A, num_actions]
    carry: Any  # [E, A, ...]: RNN carry before the network reads `obs`
    reset: Array  # [E] bool: `obs` is the first of an episode
    step: Array | np.int32  # steps played


class Step(NamedTuple):
    """One step of `E` environments."""

    before: Now
    decision: Any  # with the field `action`
    timestep: Timestep

    @property
    def ended(self) -> Array:
        """Return where the episode has ended, `[E]`."""
        return self.timestep.terminated | self.timestep.truncated


Act = Callable[[Now, Key], tuple[Any, Any]]
"""A policy, `(now, key) -> (decision, RNN carry)`; the decision has the field `action`."""


def start(env: Env, num_envs: int, carry: Any, key: Key) -> tuple[Now, Timestep]:
    """Reset environments; return where they are, and what the reset shows."""
    env_state, first = env.reset(_keys(env, key, num_envs))
    return Now(env_state, first.obs, first.legal, carry, jnp.ones(num_envs, bool), np.int32(0)), first


def step(env: Env, act: Act, now: Now, key: Key) -> tuple[Now, Step]:
    """Act and step once in every environment; one that ends its episode starts the next. `key` is that of all steps."""
    k_act = k_env = jax.random.fold_in(key, now.step)
    if env.spec.simulator is None:
        k_act, k_env = jax.random.split(k_act)
    decision, carry = act(now, k_act)
    env_state, timestep = env.step(now.env_state, decision.action, _keys(env, k_env, now.reset.shape[0]))
    seen = Step(now, decision, timestep)
    return Now(env_state, timestep.obs, timestep.legal, carry, seen.ended, now.step + 1), seen


def _keys(env: Env, key: Key, num_envs: int) -> Key:
    """Return a key per environment; a simulator reads none, since its episodes follow from their seeds."""
    return jax.random.split(key, num_envs) if env.spec.simulator is None else key


def while_loop(env: Env, going: Callable[[Tree], Any], body: Callable[[Tree], Tree], value: Tree) -> Tree:
    """Repeat steps of an environment: in a compiled program, or on the host for a simulator."""
    if env.spec.simulator is None:
        end: Tree = jax.lax.while_loop(going, body, value)
        return end
    while going(value):
        value = body(value)
    return value


def scan(env: Env, act: Act, now: Now, key: Key, num_steps: int, keep: Callable[[Step], Tree]) -> Tree:
    """Play a fixed number of steps in a compiled program, and return what `keep` keeps of each, `[T, ...]`."""

    def one(now: Now, _: None) -> tuple[Now, Tree]:
        after, seen = step(env, act, now, key)
        return after, keep(seen)

    kept: Tree = jax.lax.scan(one, now, None, num_steps)[1]
    return kept
