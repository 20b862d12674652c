"""Advantages and value targets of a rollout.

Time is the leading axis. A reward, a flag or a bootstrap value at index t followed the action of step t (the suffix
`_tp1` says so). Flags have the leading axes of the rewards: `[T]`, `[T, E]` or `[T, E, A]`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

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


def normalise(
    advantage: Float[Array, "*shape"], weight: Num[Array, ...] | Bool[Array, ...] | None = None, eps: Scalar = 1e-8
) -> Float[Array, "*shape"]:
    """Normalise to zero mean and unit (population) standard deviation over all elements; constant input gives 0.

    Args:
        advantage: any shape.
        weight: which elements count, 1 or 0 (or a bool), with the leading axes of `advantage`. The others are shifted
            and scaled in the same way, but do not enter mean and standard deviation; mask them in the loss.
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


EpisodeEnd = Literal["bootstrap", "mask", "terminal", "timeout_reward", "leak"]


def variant_gae(
    reward_tp1: Float[Array, " T *b"],
    value_t: Float[Array, " T *b"],
    value_tp1: Float[Array, " T *b"],
    terminated_tp1: Shaped[Array, " T *b"],
    truncated_tp1: Shaped[Array, " T *b"],
    gamma: Scalar,
    gae_lambda: Scalar,
    episode_end: EpisodeEnd = "bootstrap",
    form: Literal["gae", "brax"] = "gae",
    axis: Literal["time", "batch"] = "time",
) -> Advantages:
    """Compute advantages and targets `[T, N]`, to be held constant in gradients.

    Where an episode is truncated (`truncated_tp1`):

    - `bootstrap`: the error is `r + gamma V(last observation) - V`, and the sum stops (Pardo et al. 2018,
      arXiv:1712.00378).
    - `mask`: the step is left out: advantage 0, target its own value (Brax, `compute_gae`).
    - `terminal`: as if terminated: `r - V` (PureJaxRL, rejax).
    - `timeout_reward`: as `terminal`, after adding `gamma V(s_t)` to the reward (RSL-RL, Brax `bootstrap_on_timeout`).
    - `leak`: the error of `bootstrap`, but the sum continues into the next episode. A bug.

    Args:
        reward_tp1: `[T, N]` reward that followed the action of step t.
        value_t: `[T, N]` value of the observation that was acted upon.
        value_tp1: `[T, N]` value of the state that the step led to; at a truncation, of the final observation
            where `episode_end` needs it, else anything finite.
        terminated_tp1: the episode ended by its own rules; wins over truncation.
        truncated_tp1: the episode was truncated.
        gamma: discount per step.
        gae_lambda: 0 is the one-step error, 1 the discounted return less the value.
        episode_end: what a truncated step counts as.
        form: `gae`; or `brax`, `r + gamma target_{t+1} - V`, which is `delta_t + gamma GAE_{t+1}`: the first lambda is
            missing. Targets are the same.
        axis: `time`; or `batch`, which sums along N. A bug.
    """
    terminated = terminated_tp1.astype(bool)
    truncated = truncated_tp1.astype(bool) & ~terminated
    if episode_end == "timeout_reward":
        reward_tp1 = reward_tp1 + jnp.where(truncated, gamma * value_t, 0.0)
    no_bootstrap = terminated | truncated if episode_end in ("terminal", "timeout_reward") else terminated
    delta = reward_tp1 + gamma * jnp.where(no_bootstrap, 0.0, value_tp1) - value_t
    if episode_end == "mask":
        delta = jnp.where(truncated, 0.0, delta)
    stops = terminated if episode_end == "leak" else terminated | truncated
    trace = jnp.where(stops, 0.0, gamma).astype(delta.dtype)
    if axis == "batch":
        delta, trace = delta.T, trace.T
    summed = accumulate(delta, gae_lambda * trace, jnp.zeros_like(delta[0]))
    after = jnp.concatenate([summed[1:], jnp.zeros_like(summed[:1])])
    advantage = delta + trace * after if form == "brax" else summed
    if axis == "batch":
        advantage, summed = advantage.T, summed.T
    return Advantages(advantage, summed + value_t)
