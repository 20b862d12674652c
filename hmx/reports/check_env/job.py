"""Check an environment and measure its cost."""

from __future__ import annotations

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp

from hmx.config.schema import Config
from hmx.envs.checks.run import run_checks
from hmx.envs.protocol import Env
from hmx.envs.registry import make_env
from hmx.reports.bench.measure import EnvPlayer, time_in_turn
from hmx.reports.check_env.findings import CheckEnvFindings, EnvCost
from hmx.reports.check_env.request import CheckEnvRequest
from hmx.reports.check_env.simulator import check_simulator
from hmx.runs.compilation import enable_cache
from hmx.stats.intervals import median

_NUM_ENVS, _STEPS = 256, 32  # of the rollout that is timed
_LONG_ENOUGH = 1.0  # seconds of play to time
_MOST_ROUNDS = 10_000


def check_env(cfg: Config, request: CheckEnvRequest) -> CheckEnvFindings:
    """Check the environment of a configuration.

    The checks play with a step limit of a quarter of `request.steps`, if the environment allows it, and compare
    the ends of episodes with play without that limit.
    """
    warning = enable_cache()
    env = make_env(cfg.env, cfg.reward)
    if env.spec.simulator is not None:
        return check_simulator(cfg.env, env.spec, request)
    limit, own = request.steps // 4, env.spec.max_steps
    short = make_env(dataclasses.replace(cfg.env, max_steps=min(limit, own - 1) if own else limit), cfg.reward)
    longer: Env | None = env
    if own == 1 or short.spec.max_steps in (0, own):  # no lower limit is possible
        short, longer = env, None
    checked = run_checks(short, longer, request.seed, request.num_envs, request.steps, request.tolerance)
    cost = measure(env, request.seed) if request.speed and not checked.failed else None
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
        cost=cost,
        warnings=(warning,) if warning else (),
    )


def measure(env: Env, seed: int, num_envs: int = _NUM_ENVS, num_steps: int = _STEPS) -> EnvCost:
    """Time a compiled rollout of random legal actions."""
    player = EnvPlayer(env, num_envs, seed)
    rounds = time_in_turn({"": partial(player.play, num_steps)}, 1, most=_MOST_ROUNDS, seconds=_LONG_ENOUGH)[""]
    actors = player.actors
    return EnvCost(
        num_envs=num_envs,
        compile_seconds=player.compilation.seconds,
        steps_per_sec=num_envs * num_steps / median(rounds),
        state_bytes=sum(leaf.nbytes for leaf in jax.tree.leaves(actors.env_state)) // num_envs,
        obs_bytes=actors.obs.nbytes // num_envs,
    )
