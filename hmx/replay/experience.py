"""What Q-learning keeps of one step of one environment."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp

from hmx.types import Array, Timestep


class Experience(NamedTuple):
    """Transitions of `B` environments, with everything a target needs; the axis of agents is `A`.

    What is seen after the step is of its own episode: where that was cut by the step limit, its last observation and
    what would have been legal there, and not the first of the next episode.
    """

    obs_t: Array  # [B, A, *obs_shape]
    legal_t: Array  # [B, A, num_actions] bool
    alive_t: Array  # [B, A] bool: the agent takes part in the episode
    action_t: Array  # [B, A] int32
    reward_tp1: Array  # [B] float32, summed over agents
    agent_done_tp1: Array  # [B, A] bool: the agent's part ended by the rules; all true where the episode terminated
    truncated_tp1: Array  # [B] bool: the episode was cut by the step limit
    obs_tp1: Array  # [B, A, *obs_shape]
    legal_tp1: Array  # [B, A, num_actions] bool

    @property
    def terminated_tp1(self) -> Array:
        """[B] bool: the episode ended by its own rules."""
        return self.agent_done_tp1.all(-1)


def experience(obs: Array, legal: Array, agent_done: Array, action: Array, timestep: Timestep) -> Experience:
    """A step as it is stored.

    Args:
        obs: `[B, A, *obs_shape]` that the action was chosen from.
        legal: `[B, A, num_actions]` then.
        agent_done: `[B, A]`, whose part of the episode was over then.
        action: `[B, A]`.
        timestep: what it brought about.
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
    """Experience of nothing, in the shapes of a batch of environments."""
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
