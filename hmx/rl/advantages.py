"""Advantages and value targets of a rollout.

Time is the leading axis. A reward, a flag or a bootstrap value at index t followed the action of step t (the suffix
`_tp1` says so); only `segment_vtrace` reads the other convention. Flags have the leading axes of the rewards: `[T]`,
`[T, E]` or `[T, E, A]`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Num, Shaped

from hmx.rl import weighted
from hmx.types import Array, Scalar


class Advantages(NamedTuple):
    """`advantage_t` and the value target `target_t`, both `[T, ...]`; the target is `advantage_t + value_t` for GAE."""

    advantage_t: Array
    target_t: Array


def bootstraps(
    value_t: Float[Array, " T *b"],
    value_last: Float[Array, "*b"],
    value_final_tp1: Float[Array, " T *b"],
    terminated_tp1: Shaped[Array, "T ..."],
    truncated_tp1: Shaped[Array, "T ..."],
) -> Float[Array, " T *b"]:
    """Return the value of the state that each step led to, `[T, ...]`.

    It is 0 after a termination and the value of the true final observation after a truncation (Pardo et al. 2018,
    arXiv:1712.00378, eq. 6), never that of the next episode's first observation.

    Args:
        value_t: `[T, ...]` value of the observation that was acted upon.
        value_last: `[...]` value of the observation after the last step.
        value_final_tp1: `[T, ...]` value of the final observation; read only where truncated.
        terminated_tp1: the episode ended by its own rules; wins over truncation.
        truncated_tp1: the episode was truncated.
    """
    value_tp1 = jnp.concatenate([value_t[1:], value_last[None]])
    truncated, terminated = _like(truncated_tp1, value_t), _like(terminated_tp1, value_t)
    return jnp.where(terminated, 0.0, jnp.where(truncated, value_final_tp1, value_tp1))


def gae(
    reward_tp1: Float[Array, " T *b"],
    value_t: Float[Array, " T *b"],
    value_last: Float[Array, "*b"],
    value_final_tp1: Float[Array, " T *b"],
    terminated_tp1: Shaped[Array, "T ..."],
    truncated_tp1: Shaped[Array, "T ..."],
    gamma: Scalar,
    gae_lambda: Scalar,
) -> Advantages:
    """Compute generalised advantage estimates over a rollout with auto-reset.

    Schulman et al. 2016 (arXiv:1506.02438), eq. 16, as the recursion
    `A_t = delta_t + gamma lambda A_{t+1}`, `delta_t = r_{t+1} + gamma V'_{t+1} - V_t`. At the end of an
    episode the sum stops; the bootstrap `V'_{t+1}` is that of `bootstraps`.

    Args:
        reward_tp1: `[T, ...]` reward that followed the action of step t.
        value_t: `[T, ...]` value of the observation that was acted upon.
        value_last: `[...]` value of the observation after the last step.
        value_final_tp1: `[T, ...]` value of the final observation; read only where truncated.
        terminated_tp1: the episode ended by its own rules; wins over truncation.
        truncated_tp1: the episode was truncated.
        gamma: discount per step.
        gae_lambda: 0 is the one-step error, 1 the discounted return less the value.
    """
    bootstrap_tp1 = bootstraps(value_t, value_last, value_final_tp1, terminated_tp1, truncated_tp1)
    delta_t = _td_error(reward_tp1, value_t, bootstrap_tp1, gamma)
    done = _like(terminated_tp1, value_t) | _like(truncated_tp1, value_t)
    trace_t = jnp.where(done, 0.0, gamma * gae_lambda).astype(delta_t.dtype)
    advantage_t = accumulate(delta_t, trace_t, jnp.zeros_like(value_last))
    return Advantages(advantage_t, advantage_t + value_t)


def vtrace_gae(
    ratio_t: Float[Array, " T *b"],
    reward_tp1: Float[Array, " T *b"],
    value_t: Float[Array, " T *b"],
    bootstrap_tp1: Float[Array, " T *b"],
    done_tp1: Shaped[Array, "T ..."],
    advantage_last: Float[Array, "*b"] | Scalar,
    gamma: Scalar,
    gae_lambda: Scalar,
    rho_clip: Scalar,
    c_clip: Scalar,
) -> Advantages:
    """Compute GAE with errors and traces weighted by clipped importance ratios; with ratios of 1 it is GAE.

    `delta_t = min(rho_clip, w_t) (r_{t+1} + gamma V'_{t+1} - V_t)` and
    `A_t = delta_t + gamma lambda min(c_clip, w_t) (1 - d_{t+1}) A_{t+1}`: the advantage of the Metta training
    equations and of PufferLib, which is `vs - V` of V-trace (Espeholt et al. 2018, arXiv:1802.01561, eq. 1).

    The results are constants for gradients, so a policy loss may compute its ratios at the same time.

    Args:
        ratio_t: `[T, ...]` importance ratio of the action, new policy over old.
        reward_tp1: `[T, ...]` reward that followed the action of step t.
        value_t: `[T, ...]` value of the observation that was acted upon.
        bootstrap_tp1: `[T, ...]` of `bootstraps`; 0 after a termination.
        done_tp1: the episode ended with this step, by termination or truncation.
        advantage_last: `[...]` advantage of the step after the last one: 0 where it is unknown, or that of the
            sequence that follows. Not read where the last step ended its episode.
        gamma: discount per step.
        gae_lambda: 0 is the one-step error, 1 the discounted return less the value.
        rho_clip: highest weight of an error.
        c_clip: highest weight of a trace.
    """
    delta_t = jnp.minimum(ratio_t, rho_clip) * _td_error(reward_tp1, value_t, bootstrap_tp1, gamma)
    trace_t = jnp.where(_like(done_tp1, value_t), 0.0, gamma * gae_lambda * jnp.minimum(ratio_t, c_clip))
    last = jnp.broadcast_to(jnp.asarray(advantage_last, delta_t.dtype), delta_t.shape[1:])
    advantage_t = accumulate(*jax.lax.stop_gradient((delta_t, trace_t, last)))
    return Advantages(advantage_t, advantage_t + jax.lax.stop_gradient(value_t))


def segment_vtrace(
    values: Float[Array, "*slots"],
    rewards: Float[Array, "*slots"],
    dones: Shaped[Array, "*slots"],
    ratio: Float[Array, "*slots"],
    gamma: Scalar,
    gae_lambda: Scalar,
    rho_clip: Scalar,
    c_clip: Scalar,
    time_axis: int = 0,
) -> Advantages:
    """Compute `vtrace_gae` of a segment buffer, in which slot t holds what arrived together with observation t.

    A reward or done of slot t is then the result of the action of slot t - 1, as in the buffers of PufferLib and
    Metta. A segment of T slots is an ordinary rollout of T - 1 steps with a bootstrap: step t takes its reward and
    its done from slot t + 1, and the value of slot t + 1, unless done, is its bootstrap. So the first slot's reward
    and done are never read, nor is the last slot's ratio; the last slot, whose outcome the segment does not hold,
    has advantage 0 and its own value for a target: leave it out of means, standard deviations and losses.

    Args:
        values: value of each slot's observation.
        rewards: reward that arrived with it.
        dones: whether an episode ended right before it.
        ratio: importance ratio of the action taken upon it.
        gamma: discount per step.
        gae_lambda: 0 is the one-step error, 1 the discounted return less the value.
        rho_clip: highest weight of an error.
        c_clip: highest weight of a trace.
        time_axis: the axis of the slots in all four arrays and in the result; 1 for rows `[S, T]`.
    """
    value, reward, done, weight = (jnp.moveaxis(x, time_axis, 0) for x in (values, rewards, dones, ratio))
    bootstrap_tp1 = jnp.where(done[1:], 0.0, value[1:])
    known = vtrace_gae(
        weight[:-1], reward[1:], value[:-1], bootstrap_tp1, done[1:], 0.0, gamma, gae_lambda, rho_clip, c_clip
    ).advantage_t
    advantage = jnp.concatenate([known, jnp.zeros_like(value[-1:])])
    advantage = jnp.moveaxis(advantage, 0, time_axis)
    return Advantages(advantage, advantage + jax.lax.stop_gradient(values))


def vtrace_targets(
    ratio_t: Float[Array, " T *b"],
    reward_tp1: Float[Array, " T *b"],
    value_t: Float[Array, " T *b"],
    value_last: Float[Array, "*b"],
    value_final_tp1: Float[Array, " T *b"],
    terminated_tp1: Shaped[Array, "T ..."],
    truncated_tp1: Shaped[Array, "T ..."],
    gamma: Scalar,
    gae_lambda: Scalar,
    rho_clip: Scalar,
    c_clip: Scalar,
    pg_rho_clip: Scalar | None = None,
) -> Advantages:
    """Compute the value targets and policy-gradient advantages of IMPALA.

    Espeholt et al. 2018 (arXiv:1802.01561): targets `vs_t` of eq. 1 with the lambda of remark 2, and
    `min(pg_rho_clip, w_t) (r_{t+1} + gamma vs_{t+1} - V_t)`, the advantage of section 4.2. That advantage already
    holds the importance ratio, and differs from `vs_t - V_t` where lambda < 1. Both are constants for gradients.

    Args:
        ratio_t: `[T, ...]` importance ratio of the action, new policy over old.
        reward_tp1: `[T, ...]` reward that followed the action of step t.
        value_t: `[T, ...]` value of the observation that was acted upon.
        value_last: `[...]` value of the observation after the last step.
        value_final_tp1: `[T, ...]` value of the final observation; read only where truncated.
        terminated_tp1: the episode ended by its own rules; wins over truncation.
        truncated_tp1: the episode was truncated.
        gamma: discount per step.
        gae_lambda: multiplies the clip of the traces; 1 in the paper's experiments.
        rho_clip: highest weight of an error in the targets.
        c_clip: highest weight of a trace.
        pg_rho_clip: highest weight of an advantage; that of `rho_clip` if not given.
    """
    ends = (value_final_tp1, terminated_tp1, truncated_tp1)
    done = _like(terminated_tp1, value_t) | _like(truncated_tp1, value_t)
    bootstrap_tp1 = bootstraps(value_t, value_last, *ends)
    target_t = vtrace_gae(
        ratio_t, reward_tp1, value_t, bootstrap_tp1, done, 0.0, gamma, gae_lambda, rho_clip, c_clip
    ).target_t
    weight_t = jnp.minimum(ratio_t, rho_clip if pg_rho_clip is None else pg_rho_clip)
    advantage_t = weight_t * _td_error(reward_tp1, value_t, bootstraps(target_t, value_last, *ends), gamma)
    return Advantages(jax.lax.stop_gradient(advantage_t), target_t)


def normalise(
    advantage: Float[Array, "*shape"], weight: Num[Array, ...] | Bool[Array, ...] | None = None, eps: Scalar = 1e-8
) -> Float[Array, "*shape"]:
    """Normalise to zero mean and unit (population) standard deviation over all elements; constant input gives 0.

    Args:
        advantage: any shape.
        weight: which elements count, 1 or 0 (or a bool), with the leading axes of `advantage`. The others are
            shifted and scaled in the same way, but are left out of mean and standard deviation; mask them in the loss.
        eps: added to the standard deviation.
    """
    if weight is not None:
        weight = jnp.broadcast_to(_like(weight, advantage), advantage.shape)
    centred = advantage - weighted.mean(advantage, weight)
    return centred / (jnp.sqrt(weighted.mean(jnp.square(centred), weight)) + eps)


def _td_error(reward_tp1: Array, value_t: Array, bootstrap_tp1: Array, gamma: Scalar) -> Array:
    """Return the temporal-difference error."""
    return reward_tp1 + gamma * bootstrap_tp1 - value_t


def accumulate(
    delta_t: Float[Array, " T *b"], trace_t: Float[Array, " T ..."], last: Float[Array, "*b"]
) -> Float[Array, " T *b"]:
    """Compute `A_t = delta_t + trace_t A_{t+1}` along the leading axis, with `last` after the end."""

    def backwards(advantage_tp1: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
        delta, trace = step
        advantage = delta + trace * advantage_tp1
        return advantage, advantage

    _, advantage_t = jax.lax.scan(backwards, last, (delta_t, trace_t), reverse=True)
    return advantage_t


def _like(flags: Array, values: Array) -> Array:
    return flags.reshape(flags.shape + (1,) * (values.ndim - flags.ndim)).astype(bool)
