"""The advantages that implementations of PPO really compute, each named for what it does with a cut episode.

`hmx.rl.advantages.gae` is the right one. The others are here to reproduce and to compare: some are choices, two are
bugs.
"""

from __future__ import annotations

import jax.numpy as jnp

from hmx.rl.advantages import Advantages, accumulate
from hmx.types import Array

ENDS = ("bootstrap", "mask", "terminal", "timeout_reward", "leak")


def variant_gae(
    reward_tp1: Array,
    value_t: Array,
    value_tp1: Array,
    terminated_tp1: Array,
    truncated_tp1: Array,
    gamma: float,
    gae_lambda: float,
    episode_end: str = "bootstrap",
    form: str = "gae",
    axis: str = "time",
) -> Advantages:
    """Advantages and targets `[T, N]`; both are to be held constant in gradients.

    Where an episode is cut (`truncated_tp1`):

    - `bootstrap`: the error is `r + gamma V(last observation) - V`, and the sum stops (Pardo et al. 2018,
      arXiv:1712.00378).
    - `mask`: the step is left out: advantage 0, target its own value (Brax, `compute_gae`).
    - `terminal`: as if terminated: `r - V` (PureJaxRL, rejax).
    - `timeout_reward`: likewise, after `gamma V(s_t)` was added to the reward (RSL-RL; Brax's `bootstrap_on_timeout`).
    - `leak`: the error of `bootstrap`, but the sum runs on into the next episode. A bug.

    Args:
        reward_tp1: `[T, N]` reward that followed the action of step t.
        value_t: `[T, N]` value of the observation that was acted upon.
        value_tp1: `[T, N]` value of the state that the step led to; at a cut, of the last observation where
            `episode_end` asks for it, else anything finite.
        terminated_tp1: the episode ended by its own rules; wins over a cut.
        truncated_tp1: the episode was cut.
        gamma: discount per step.
        gae_lambda: 0 is the one-step error, 1 the discounted return less the value.
        episode_end: one of `ENDS`.
        form: `gae`; or `brax`, `r + gamma target_{t+1} - V`, which is `delta_t + gamma GAE_{t+1}`: the first lambda is
            missing. Targets are the same.
        axis: `time`; or `batch`, which sums along N. A bug.
    """
    terminated = terminated_tp1.astype(bool)
    cut = truncated_tp1.astype(bool) & ~terminated
    if episode_end == "timeout_reward":
        reward_tp1 = reward_tp1 + jnp.where(cut, gamma * value_t, 0.0)
    nothing_follows = terminated | cut if episode_end in ("terminal", "timeout_reward") else terminated
    delta = reward_tp1 + gamma * jnp.where(nothing_follows, 0.0, value_tp1) - value_t
    if episode_end == "mask":
        delta = jnp.where(cut, 0.0, delta)
    stops = terminated if episode_end == "leak" else terminated | cut
    reach = jnp.where(stops, 0.0, gamma).astype(delta.dtype)
    if axis == "batch":
        delta, reach = delta.T, reach.T
    summed = accumulate(delta, gae_lambda * reach, jnp.zeros_like(delta[0]))
    after = jnp.concatenate([summed[1:], jnp.zeros_like(summed[:1])])
    advantage = delta + reach * after if form == "brax" else summed
    if axis == "batch":
        advantage, summed = advantage.T, summed.T
    return Advantages(advantage, summed + value_t)
