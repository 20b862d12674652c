"""V-trace as other programs state it, in terms of `hmx.rl.advantages.vtrace_gae`: a segment buffer, and IMPALA."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Float, Shaped

from hmx.rl.advantages import Advantages, bootstraps, vtrace_gae
from hmx.types import Array, Scalar


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
    terminated_tp1: Shaped[Array, " T *b"],
    truncated_tp1: Shaped[Array, " T *b"],
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
    done = terminated_tp1.astype(bool) | truncated_tp1.astype(bool)
    bootstrap_tp1 = bootstraps(value_t, value_last, *ends)
    target_t = vtrace_gae(
        ratio_t, reward_tp1, value_t, bootstrap_tp1, done, 0.0, gamma, gae_lambda, rho_clip, c_clip
    ).target_t
    weight_t = jnp.minimum(ratio_t, rho_clip if pg_rho_clip is None else pg_rho_clip)
    advantage_t = weight_t * (reward_tp1 + gamma * bootstraps(target_t, value_last, *ends) - value_t)
    return Advantages(jax.lax.stop_gradient(advantage_t), target_t)
