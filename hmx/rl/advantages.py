"""Advantages and value targets of a rollout."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from hmx.types import Array


class Advantages(NamedTuple):
    """`advantage_t` and the value target `target_t = advantage_t + value_t`, both `[T, ...]`."""

    advantage_t: Array
    target_t: Array


def _like(flags: Array, values: Array) -> Array:
    return flags.reshape(flags.shape + (1,) * (values.ndim - flags.ndim))


def gae(
    reward_tp1: Array,
    value_t: Array,
    value_last: Array,
    value_final_tp1: Array,
    terminated_tp1: Array,
    truncated_tp1: Array,
    gamma: float,
    gae_lambda: float,
) -> Advantages:
    """Generalised advantage estimation over a rollout with auto-reset.

    Schulman et al. 2016 (arXiv:1506.02438), eq. 16, as the recursion
    `A_t = delta_t + gamma lambda A_{t+1}`, `delta_t = r_{t+1} + gamma V'_{t+1} - V_t`. At the end of an
    episode the sum stops; the bootstrap `V'_{t+1}` is 0 after a termination and the value of the true
    final observation after a truncation (Pardo et al. 2018, arXiv:1712.00378, eq. 6), never that of the next
    episode's first observation.

    Args:
        reward_tp1: `[T, ...]` reward that followed the action of step t.
        value_t: `[T, ...]` value of the observation that was acted upon.
        value_last: `[...]` value of the observation after the last step.
        value_final_tp1: `[T, ...]` value of the final observation; read only where truncated.
        terminated_tp1: `[T]` or `[T, E]`: leading axes of the rewards; wins over truncation.
        truncated_tp1: likewise.
        gamma: discount per step.
        gae_lambda: 0 is the one-step error, 1 the discounted return less the value.
    """
    terminated = _like(terminated_tp1, reward_tp1)
    truncated = _like(truncated_tp1, reward_tp1)
    value_tp1 = jnp.concatenate([value_t[1:], value_last[None]])
    bootstrap_tp1 = jnp.where(terminated, 0.0, jnp.where(truncated, value_final_tp1, value_tp1))
    delta_t = reward_tp1 + gamma * bootstrap_tp1 - value_t
    trace_t = jnp.where(terminated | truncated, 0.0, gamma * gae_lambda).astype(delta_t.dtype)

    def backwards(advantage_tp1: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
        delta, trace = step
        advantage = delta + trace * advantage_tp1
        return advantage, advantage

    _, advantage_t = jax.lax.scan(backwards, jnp.zeros_like(delta_t[0]), (delta_t, trace_t), reverse=True)
    return Advantages(advantage_t, advantage_t + value_t)


def normalise(advantage: Array, eps: float = 1e-8) -> Array:
    """Zero mean and unit (population) standard deviation over all elements; constant input gives 0."""
    centred = advantage - advantage.mean()
    return centred / (jnp.sqrt(jnp.square(centred).mean()) + eps)
