"""The advantages that implementations of PPO compute, named after how they treat truncated episodes.

`hmx.rl.advantages.gae` is correct. The others reproduce other programs: some are choices, two are bugs.
"""

from __future__ import annotations

from typing import Literal

import jax.numpy as jnp
from jaxtyping import Float, Shaped

from hmx.rl.advantages import Advantages, accumulate
from hmx.types import Array, Scalar

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
    - `leak`: the error of `bootstrap`, but the sum runs on into the next episode. A bug.

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
