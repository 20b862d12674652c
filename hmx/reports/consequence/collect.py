"""Collect positions by playing, for runs without a replay buffer."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hmx.agents.policy_outputs import PolicyOutputs
from hmx.config.schema import Config
from hmx.env.protocol import Env
from hmx.rl import distributions
from hmx.runs.buffers import ACTION, LEGAL, OBS, Buffer, header_of
from hmx.runs.checkpoint import to_host
from hmx.runs.signals import interruptible
from hmx.types import Array, Key

_PARALLEL = 16  # environments: few, so that each gets far into its episodes


class _Step(NamedTuple):
    items: dict[str, Array]
    env_state: Any
    td_error: Array  # [E]


def collect(
    cfg: Config, env: Env, preferences: PolicyOutputs, params: Any, number: int, key: Key, *, run: str, update: int
) -> Buffer:
    """Fill a buffer with at least `number` successive transitions of an agent that plays as in training.

    Sixteen environments run in parallel (fewer for fewer transitions), from the start of an episode. The TD error is
    that of the value function, `|r + gamma V(s') - V(s)|`.
    """
    num_envs = min(_PARALLEL, number)
    steps = -(-number // num_envs)
    program = jax.jit(partial(_played, cfg, env, preferences, num_envs, steps))
    seen: _Step = interruptible(lambda: jax.block_until_ready(program(params, key)))
    size = steps * num_envs
    axes = [1 + env.spec.state_axis % (leaf.ndim - 1) for leaf in jax.tree.leaves(seen.env_state)]
    states = {}
    for (name, leaf), axis in zip(to_host(seen.env_state).items(), axes, strict=True):
        leading = np.moveaxis(leaf, axis, 1)
        states[name] = leading.reshape(size, *leading.shape[2:])
    birth = np.arange(size, dtype=np.uint32)
    td_errors = np.abs(np.asarray(seen.td_error, np.float32)).reshape(size)
    header = header_of(
        cfg, env.spec,
        capacity=size, size=size, position=0, num_added=size, num_envs=num_envs,
        td_max=float(td_errors.max()), run=run, update=update,
    )  # fmt: skip
    return Buffer(
        header=header,
        items={name: leaf.reshape(size, *leaf.shape[2:]) for name, leaf in to_host(seen.items).items()},
        env_states=states,
        td_errors=td_errors,
        consequence_scores=np.zeros(size, np.float32),
        scored=np.zeros(size, bool),
        scored_at=np.zeros(size, np.uint32),
        birth=birth,
    )


def _played(
    cfg: Config, env: Env, preferences: PolicyOutputs, num_envs: int, steps: int, params: Any, key: Key
) -> _Step:
    k_reset, k_play = jax.random.split(key)
    state, shown = env.reset(jax.random.split(k_reset, num_envs))

    def play(now: tuple[Any, Array, Array], step: Array) -> tuple[tuple[Any, Array, Array], _Step]:
        state, obs, legal = now
        k_act, k_env = jax.random.split(jax.random.fold_in(k_play, step))
        preferred = preferences.outputs(params, obs)
        action = jax.vmap(distributions.sample)(jax.random.split(k_act, num_envs), preferred, legal)
        after, timestep = env.step(state, action, jax.random.split(k_env, num_envs))
        team = timestep.reward.mean(-1) if preferences.team_reward == "mean" else timestep.reward.sum(-1)
        value = preferences.value(params, timestep.final_obs, timestep.final_legal)
        following = jnp.where(timestep.terminated, 0.0, value)
        error = team + cfg.algo.gamma * following - preferences.value(params, obs, legal)
        items = {
            OBS: obs,
            LEGAL: legal,
            ACTION: action,
            "reward_tp1": team,
            "terminated_tp1": timestep.terminated,
            "truncated_tp1": timestep.truncated,
        }
        return (after, timestep.obs, timestep.legal), _Step(items, state, error)

    return jax.lax.scan(play, (state, shown.obs, shown.legal), jnp.arange(steps))[1]
