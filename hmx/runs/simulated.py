"""Simulators in worker processes as environments that the host steps: to evaluate a policy, and to watch it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from hmx.config.schema import EnvConfig
from hmx.envs.protocol import ON_HOST, Env, EnvSpec, EnvState
from hmx.registry.workers import worker_plan
from hmx.runs.hosted import rows_of
from hmx.simulators.episode import EVALUATION
from hmx.simulators.pool import WorkerPool
from hmx.types import Array, Key, Timestep


def open_pool(spec: EnvSpec, env: EnvConfig, num_envs: int, seed: int, render_mode: str | None = None) -> WorkerPool:
    """Start workers with `num_envs` simulators, whose episodes are those of an evaluation with a seed."""
    assert spec.simulator is not None
    plan = worker_plan(dataclasses.replace(env, num_envs=num_envs, num_workers=0, envs_per_worker=0, async_factor=1))
    recipe, facts, _ = spec.simulator
    recipe = recipe._replace(render_mode=render_mode)
    return WorkerPool(recipe, facts, plan, seed=seed, stream=EVALUATION, timeout=env.worker_timeout)


def on_host(spec: EnvSpec, pool: WorkerPool) -> Env:
    """Return the simulators of a pool as an environment outside compiled programs, with arrays of NumPy.

    Its state is in the workers: a reset starts the running episodes again, and keys are not read.
    """
    at = pool.at

    def seen() -> tuple[EnvState, Timestep]:
        obs, legal, reward = at.obs[:, None].copy(), at.legal[:, None].copy(), at.reward[:, None].copy()
        terminated, truncated = at.terminated.copy(), at.truncated.copy()
        ended = (terminated | truncated).reshape(-1, *(1,) * (obs.ndim - 1))
        final_obs = np.where(ended, at.final_obs[:, None], obs)
        ends = terminated, truncated, terminated[:, None]
        shown: Any = (obs, legal, final_obs, legal, reward, *ends, {"reward": reward[:, 0]}, {})
        return (), Timestep(*shown)

    def reset(keys: Key) -> tuple[EnvState, Timestep]:
        pool.reset()
        at.reward[:], at.terminated[:], at.truncated[:] = 0.0, False, False
        return seen()

    def step(state: EnvState, action: Array, keys: Key) -> tuple[EnvState, Timestep]:
        at.action[:] = rows_of(action, at.action)
        pool.send(0)
        pool.wait(0)
        return seen()

    return Env(spec, reset, step, stepper=ON_HOST)


@contextlib.contextmanager
def opened(env: Env, cfg: EnvConfig, num_envs: int, seed: int) -> Iterator[Env]:
    """Yield an environment that can be stepped: itself, or the workers of a simulator, which end with the block.

    Args:
        env: the environment.
        cfg: its configuration.
        num_envs: of the simulator.
        seed: of its episodes.
    """
    if env.spec.simulator is None:
        yield env
        return
    with open_pool(env.spec, cfg, num_envs, seed) as pool:
        yield on_host(env.spec, pool)
