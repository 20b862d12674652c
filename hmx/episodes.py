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
    env_state, first = env.reset(env.stepper.spread(key, num_envs))
    return Now(env_state, first.obs, first.legal, carry, jnp.ones(num_envs, bool), np.int32(0)), first


def step(env: Env, act: Act, now: Now, key: Key) -> tuple[Now, Step]:
    """Act and step once in every environment; one that ends its episode starts the next. `key` is that of all steps."""
    k_act, k_env = env.stepper.split(jax.random.fold_in(key, now.step))
    decision, carry = act(now, k_act)
    env_state, timestep = env.step(now.env_state, decision.action, env.stepper.spread(k_env, now.reset.shape[0]))
    seen = Step(now, decision, timestep)
    return Now(env_state, timestep.obs, timestep.legal, carry, seen.ended, now.step + 1), seen


def scan(env: Env, act: Act, now: Now, key: Key, num_steps: int, keep: Callable[[Step], Tree]) -> Tree:
    """Play a fixed number of steps in a compiled program, and return what `keep` keeps of each, `[T, ...]`."""

    def one(now: Now, _: None) -> tuple[Now, Tree]:
        after, seen = step(env, act, now, key)
        return after, keep(seen)

    kept: Tree = jax.lax.scan(one, now, None, num_steps)[1]
    return kept
