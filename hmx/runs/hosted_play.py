"""Play whole episodes in a simulator, step by step: to evaluate a policy, to watch it, and to report its episodes."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from hmx.algos.types import Decision
from hmx.config.schema import EnvConfig
from hmx.envs.protocol import EnvSpec
from hmx.registry.workers import worker_plan
from hmx.runs.hosted import rows_of
from hmx.simulators.episode import EVALUATION
from hmx.simulators.pool import WorkerPool
from hmx.types import Key

Array = np.ndarray[Any, Any]
Decide = Callable[[Any, Array, Array, Array, Key], tuple[Decision, Any]]
"""`(carry, obs [E, 1, ...], legal [E, 1, actions], reset [E], key) -> (Decision, carry)`, compiled."""


class HostedStep(NamedTuple):
    """One step of `E` environments, on the host."""

    number: Array  # [E] int64: the episode that each environment plays
    obs: Array  # [E, 1, *obs_shape]: before the action
    legal: Array  # [E, 1, num_actions]: before the action
    decision: Decision
    reward: Array  # [E] float32
    terminated: Array  # [E] bool
    truncated: Array  # [E] bool
    last_obs: Array  # [E, 1, *obs_shape]: after the action, within the same episode


def open_pool(spec: EnvSpec, env: EnvConfig, num_envs: int, seed: int, render_mode: str | None = None) -> WorkerPool:
    """Start workers with `num_envs` simulators, whose episodes are those of an evaluation with a seed."""
    assert spec.simulator is not None
    plan = worker_plan(dataclasses.replace(env, num_envs=num_envs, num_workers=0, envs_per_worker=0, async_factor=1))
    recipe, facts, _ = spec.simulator
    return WorkerPool(
        recipe, facts, plan, seed=seed, stream=EVALUATION, timeout=env.worker_timeout, render_mode=render_mode
    )


def play_steps(pool: WorkerPool, decide: Decide, carry: Any, key: Key) -> Iterator[HostedStep]:
    """Play episodes 0, 1, 2 and so on in every environment, for as long as the caller asks for steps."""
    at = pool.at
    at.number[:] = 0
    pool.reset()
    reset = np.ones(len(at.number), bool)
    for step in itertools.count():
        number, obs, legal = at.number.copy(), at.obs[:, None].copy(), at.legal[:, None].copy()
        decision, carry = decide(carry, obs, legal, reset, jax.random.fold_in(key, step))
        decision = jax.device_get(decision)
        at.action[:] = rows_of(decision.action, at.action)
        pool.send(0)
        pool.wait(0)
        reset = at.terminated | at.truncated
        shown = reset.reshape(-1, *[1] * (at.obs.ndim - 1))
        last_obs = np.where(shown, at.final_obs, at.obs)[:, None]
        ends = at.terminated.copy(), at.truncated.copy()
        yield HostedStep(number, obs, legal, decision, at.reward.copy(), *ends, last_obs)
