"""Check an environment and measure what it costs."""

from __future__ import annotations

import dataclasses
import itertools
import time

import jax
import jax.numpy as jnp

from hmx.agents.evaluate import random_actions
from hmx.config.schema import Config, EnvConfig, RewardWeights
from hmx.env.checks.run import run_checks
from hmx.env.protocol import Env, EnvState
from hmx.env.registry import make_env
from hmx.reports.env_check.findings import CheckEnvFindings, EnvCost
from hmx.reports.env_check.request import CheckEnvRequest
from hmx.runs.compilation import enable_cache
from hmx.types import Key, Timestep

REFERENCE = EnvConfig()  # HackMatrix
_NUM_ENVS, _STEPS = 256, 32  # of the rollout that is timed
_LONG_ENOUGH = 1.0  # seconds of play to time
_SAVED = "/jax/compilation_cache/compile_time_saved_sec"


def check_env(cfg: Config, request: CheckEnvRequest) -> CheckEnvFindings:
    """Check the environment of a configuration.

    The checks play with a step limit of a quarter of `request.steps`, if the environment allows it, and compare
    the ends of episodes with play without that limit.

    Raises:
        HmxError: the environment does not exist or cannot be built.
    """
    warning = enable_cache()
    env = make_env(cfg.env, cfg.reward)
    limit, own = request.steps // 4, env.spec.max_steps
    short = make_env(dataclasses.replace(cfg.env, max_steps=min(limit, own - 1) if own else limit), cfg.reward)
    if own == 1 or short.spec.max_steps in (0, own):  # no lower limit is possible
        short, env_longer = env, None
    else:
        env_longer = env
    checked = run_checks(short, env_longer, request.seed, request.num_envs, request.steps, request.tolerance)
    measured = []
    if request.speed and not checked.failed:
        others = [] if cfg.env.id == REFERENCE.id else [make_env(REFERENCE, RewardWeights())]
        measured = [measure(each, request.seed) for each in (env, *others)]
    steps = checked.walk.timestep_tp1 if checked.walk else None
    spec = env.spec
    return CheckEnvFindings(
        env=cfg.env.id,
        passed=not checked.failed,
        request=request,
        obs_shape=spec.obs_shape,
        obs_dtype=str(jnp.dtype(spec.obs_dtype)),
        num_actions=spec.num_actions,
        action_dim=spec.action_dim,
        num_agents=spec.num_agents,
        reward_terms=spec.reward_terms,
        max_steps=spec.max_steps,
        checked_max_steps=short.spec.max_steps,
        terminated=int(steps.terminated.sum()) if steps else 0,
        truncated=int(steps.truncated.sum()) if steps else 0,
        checks=checked.results,
        costs=tuple(measured),
        warnings=(warning,) if warning else (),
    )


def measure(env: Env, seed: int, num_envs: int = _NUM_ENVS, num_steps: int = _STEPS) -> EnvCost:
    """Time a compiled rollout of random legal actions."""

    def one(carry: tuple[EnvState, Timestep], key: Key) -> tuple[tuple[EnvState, Timestep], None]:
        state, timestep = carry
        k_action, k_step = jax.random.split(key)
        action = random_actions(k_action, timestep.legal, env.spec.action_dim)
        return env.step(state, action, jax.random.split(k_step, num_envs)), None

    def rollout(carry: tuple[EnvState, Timestep], key: Key) -> tuple[EnvState, Timestep]:
        # the timestep is carried, so that no part of it is optimised away
        return jax.lax.scan(one, carry, jax.random.split(key, num_steps))[0]

    k_reset, k_play = jax.random.split(jax.random.key(seed))
    carry = jax.jit(env.reset)(jax.random.split(k_reset, num_envs))
    keys = itertools.cycle(jax.random.split(k_play, 64))
    saved: list[float] = []

    def listen(event: str, duration_secs: float, **_: str | int) -> None:
        saved.extend([duration_secs] if event == _SAVED else [])

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        start = time.perf_counter()
        compiled = jax.jit(rollout).lower(carry, k_play).compile()
        compile_seconds = time.perf_counter() - start + sum(saved)
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    start, played = time.perf_counter(), 0
    while (seconds := time.perf_counter() - start) < _LONG_ENOUGH:
        carry = jax.block_until_ready(compiled(carry, next(keys)))
        played += num_envs * num_steps
    state, timestep = carry
    return EnvCost(
        env=env.spec.id,
        num_envs=num_envs,
        compile_seconds=compile_seconds,
        steps_per_sec=played / seconds,
        state_bytes=sum(leaf.nbytes for leaf in jax.tree.leaves(state)) // num_envs,
        obs_bytes=timestep.obs.nbytes // num_envs,
    )
