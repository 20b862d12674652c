"""The transitions that Q-learning stores, and returns over several of them."""

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
    """Make the transition of a step: the observation before the action, the action, and its result."""
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


def n_step(
    reward: Float[Array, " n *B"],
    terminated: Bool[Array, " n *B"],
    truncated: Bool[Array, " n *B"],
    there: Bool[Array, " n *B"],
    gamma: float | Float[Array, ""],
) -> tuple[Float[Array, "*B"], Float[Array, "*B"], Int[Array, "*B"]]:
    """Sum discounted rewards of up to n steps, for a target that bootstraps from the state after the last of them.

    The return stops with the episode. A truncated episode bootstraps from its last state, to be looked up at `last`.
    Steps without `there` are unknown and do not count; the first step is always known.

    Returns:
        `ret`, `discount` and `last`: the target is `ret + discount * value(observation after step last)`. The discount
        is 0 where the episode terminated; `last` is the last step counted, from 0.
    """
    ended = terminated | truncated
    before = jnp.concatenate([jnp.zeros_like(ended[:1]), ended[:-1]])
    unknown = ~there
    counts = jnp.cumsum((before | unknown).astype(jnp.int32), 0) == 0
    steps = jnp.arange(reward.shape[0], dtype=jnp.float32).reshape((-1,) + (1,) * (reward.ndim - 1))
    discounts = jnp.power(jnp.float32(gamma), steps)
    ret = jnp.where(counts, discounts * reward, 0.0).sum(0)
    num = counts.sum(0, dtype=jnp.int32)
    last = jnp.maximum(num - 1, 0)
    over = jnp.take_along_axis(terminated, last[None], 0)[0]
    return ret, jnp.where(over, 0.0, jnp.power(jnp.float32(gamma), num.astype(jnp.float32))), last
