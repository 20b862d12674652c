"""The transitions that Q-learning stores."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from hmx.types import Timestep


class Experience(NamedTuple):
    """Transitions of `B` environments with `A` agents, with everything a target needs.

    Observations after the step belong to the same episode: if it was truncated, its last observation and the actions
    that would have been legal there, not the first of the next episode.
    """

    obs_t: Array  # [B, A, *obs_shape]
    legal_t: Bool[Array, "*B A num_actions"]
    alive_t: Bool[Array, "*B A"]  # the agent takes part in the episode
    action_t: Int[Array, "*B A"]
    reward_tp1: Float[Array, "*B"]  # summed over agents
    agent_done_tp1: Bool[Array, "*B A"]  # the agent is done by the rules; all true where the episode terminated
    truncated_tp1: Bool[Array, "*B"]  # the episode was truncated by the step limit
    obs_tp1: Array  # [B, A, *obs_shape]
    legal_tp1: Bool[Array, "*B A num_actions"]

    @property
    def terminated_tp1(self) -> Bool[Array, "*B"]:
        """Return whether the episode ended by its own rules."""
        return self.agent_done_tp1.all(-1)


def experience(
    obs: Array,
    legal: Bool[Array, "B A num_actions"],
    agent_done: Bool[Array, "B A"],
    action: Int[Array, "B A"],
    timestep: Timestep,
) -> Experience:
    """Make the transition of a step.

    Args:
        obs: `[B, A, *obs_shape]`, before the action.
        legal: legal actions before the action.
        agent_done: whether the agent was done before the action.
        action: the actions taken.
        timestep: result of the action.
    """
    return Experience(
        obs_t=obs,
        legal_t=legal,
        alive_t=~agent_done,
        action_t=action,
        reward_tp1=timestep.reward.sum(-1),
        agent_done_tp1=timestep.agent_done,
        truncated_tp1=timestep.truncated,
        obs_tp1=timestep.final_obs,
        legal_tp1=timestep.final_legal,
    )


def blank(num_envs: int, num_agents: int, obs_shape: tuple[int, ...], obs_dtype: Any, num_actions: int) -> Experience:
    """Make empty transitions in the shapes of a batch of environments."""
    agents = (num_envs, num_agents)
    return Experience(
        obs_t=jnp.zeros((*agents, *obs_shape), obs_dtype),
        legal_t=jnp.ones((*agents, num_actions), bool),
        alive_t=jnp.ones(agents, bool),
        action_t=jnp.zeros(agents, jnp.int32),
        reward_tp1=jnp.zeros(num_envs, jnp.float32),
        agent_done_tp1=jnp.ones(agents, bool),
        truncated_tp1=jnp.zeros(num_envs, bool),
        obs_tp1=jnp.zeros((*agents, *obs_shape), obs_dtype),
        legal_tp1=jnp.ones((*agents, num_actions), bool),
    )
