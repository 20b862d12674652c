"""Where training goes on after an episode, other than at the fresh start that the environment draws itself."""

from __future__ import annotations

from typing import NamedTuple

import jax

from hmx.env.protocol import Env, EnvSpec, EnvState, select
from hmx.types import Array, Key, Timestep


class Starts(NamedTuple):
    """One start of every environment."""

    env_state: EnvState
    obs: Array  # [E, A, *obs_shape]
    legal: Array  # [E, A, num_actions]


def draw(env: Env, num_envs: int, key: Key) -> Starts:
    """Fresh starts."""
    env_state, timestep = env.reset(jax.random.split(key, num_envs))
    return Starts(env_state, timestep.obs, timestep.legal)


def go_back(spec: EnvSpec, starts: Starts, env_state: EnvState, timestep: Timestep) -> tuple[EnvState, Timestep]:
    """The step with every episode that ended followed by its environment's start in `starts`.

    Brax's auto-reset returns to the same first state every time (brax/envs/wrappers/training.py). What the step paid,
    how the episode ended and its last observation stay.
    """
    done = timestep.terminated | timestep.truncated
    env_state = select(done, starts.env_state, env_state, spec.state_axis)
    obs, legal = select(done, (starts.obs, starts.legal), (timestep.obs, timestep.legal))
    return env_state, timestep._replace(obs=obs, legal=legal)
