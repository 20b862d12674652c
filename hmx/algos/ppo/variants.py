"""Switches that reproduce other implementations of PPO; `hmx.algos.ppo.update` calls them where they deviate.

Functions that take a batch, a state or observations return them unchanged for the default configuration. docs/ppo.md
lists the switches.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Shaped

from hmx.algos.collector import Rollout, RolloutOptions
from hmx.algos.sequences import Batch, as_sequences
from hmx.algos.types import RolloutState, Starts, TrainState
from hmx.config.learning import PpoConfig
from hmx.config.schema import EnvConfig
from hmx.envs.protocol import Env, select
from hmx.rl import normaliser
from hmx.rl.advantages import Advantages, EpisodeEnd, variant_gae, vtrace_gae
from hmx.rl.normaliser import RunningStats
from hmx.types import Array, Key

# Rollouts


def rollout_options(ppo: PpoConfig) -> RolloutOptions:
    """Return the parts of a rollout that `ppo.obs_norm = env` and `ppo.value_forward = both` need."""
    both = ppo.value_forward == "both"
    return RolloutOptions(
        normalize_fn=_normalise(ppo) if ppo.obs_norm == "env" else None,
        final_obs=both and ppo.advantage_when == "minibatch",
        final_value=both and ppo.advantage_when == "rollout",
    )


def with_starts(options: EnvConfig, share: float, actors: RolloutState) -> RolloutState:
    """Add the start states that `starts.share` and `env.reset_on_done = first` keep."""
    if share:
        return actors._replace(episode=actors.episode._replace(later=jnp.zeros_like(actors.reset)))
    if options.reset_on_done != "first":
        return actors
    return actors._replace(starts=Starts(actors.env_state, actors.obs, actors.legal))


def before_rollout(
    options: EnvConfig,
    env: Env,
    state: TrainState,
    key: Key,
    begin: Callable[[Key], RolloutState],
    start_share: Float[Array, ""] | None,
) -> tuple[RolloutState, Key]:
    """Apply `env.full_reset_every`, `env.reset_on_done = rollout_cache` and `starts.share`.

    Returns:
        The actors, and the key for the rollout.
    """
    actors, full_every = state.actors, options.full_reset_every
    draws = options.reset_on_done == "rollout_cache" or start_share is not None
    if not full_every and not draws:
        return actors, key
    k_play, k_full, k_starts = jax.random.split(key, 3)
    if full_every:
        due = (state.update > 0) & (state.update % full_every == 0)
        fresh = begin(k_full)._replace(obs_stats=actors.obs_stats)
        actors = jax.tree.map(partial(jnp.where, due), fresh, actors)
    if draws:
        actors = actors._replace(starts=_draw_starts(env, k_starts, options.num_envs, start_share))
    return actors, k_play


def _draw_starts(env: Env, key: Key, num_envs: int, share: Float[Array, ""] | None) -> Starts:
    """Draw a start state for every environment; with a `share`, a later start that this share of environments uses."""
    if share is None:
        env_state, timestep = env.reset(jax.random.split(key, num_envs))
        return Starts(env_state, timestep.obs, timestep.legal)
    assert env.spec.later_reset is not None
    k_states, k_used = jax.random.split(key)
    env_state, timestep = env.spec.later_reset(jax.random.split(k_states, num_envs))
    return Starts(env_state, timestep.obs, timestep.legal, jax.random.uniform(k_used, (num_envs,)) < share)


def after_rollout(options: EnvConfig, actors: RolloutState) -> RolloutState:
    """Drop the start states that were drawn for this rollout."""
    return actors if options.reset_on_done == "first" else actors._replace(starts=None)


# Observations


def _normalise(ppo: PpoConfig) -> Callable[[RunningStats, Array], Array]:
    return partial(normaliser.normalise, ddof=ppo.obs_norm_ddof, clip=ppo.obs_norm_clip)


def network_obs(ppo: PpoConfig, stats: RunningStats | None, obs: Shaped[Array, "*shape"]) -> Shaped[Array, "*shape"]:
    """Return observations as the network reads them: normalised if `ppo.obs_norm = network`."""
    return obs if ppo.obs_norm != "network" or stats is None else _normalise(ppo)(stats, obs)


def network_batch(ppo: PpoConfig, stats: RunningStats | None, batch: Batch) -> Batch:
    """Return sequences with all observations as the network reads them."""
    if ppo.obs_norm != "network":
        return batch
    read = partial(jax.tree.map, partial(network_obs, ppo, stats))
    return batch._replace(obs=read(batch.obs), obs_next=read(batch.obs_next), obs_last=read(batch.obs_last))


def env_obs(
    ppo: PpoConfig, stats: RunningStats | None, obs: Shaped[Array, "E A *s"], reset: Bool[Array, " E"]
) -> Shaped[Array, "E A *s"]:
    """Return raw observations as a step under `ppo.obs_norm = env` returns them: normalised, except the first ones."""
    if ppo.obs_norm != "env" or stats is None:
        return obs
    normalised = _normalise(ppo)(stats, obs)
    chosen: Array = select(reset, obs.astype(normalised.dtype), normalised)
    return chosen


def update_obs_stats(ppo: PpoConfig, actors: RolloutState, rollout: Rollout) -> RolloutState:
    """Merge the observations of a rollout into the statistics of `ppo.obs_norm = network`."""
    if ppo.obs_norm != "network" or actors.obs_stats is None:
        return actors
    seen = rollout.transitions
    return actors._replace(obs_stats=normaliser.merge(actors.obs_stats, seen.obs_t, seen.alive_t))


# Advantages


def has_standard_advantages(ppo: PpoConfig) -> bool:
    """Return whether advantages of a rollout are GAE over time with a bootstrap at truncations."""
    plain = ppo.advantage != "brax" and (ppo.gae_axis, ppo.episode_end) == ("time", "bootstrap")
    return plain and ppo.value_forward == "shift"


def rollout_advantages(rollout: Rollout, ppo: PpoConfig, gamma: float) -> Advantages:
    """Compute advantages and targets `[T, E, A]` of the forms of `variant_gae`, with the values of the rollout."""
    seen = rollout.transitions
    value_tp1 = jnp.concatenate([seen.value_t[1:], rollout.value_last[None]])
    if ppo.value_forward == "both" and ppo.advantage_when == "rollout":
        value_tp1 = seen.value_final_tp1
    value_tp1 = jnp.where(seen.truncated_tp1, seen.value_final_tp1, value_tp1)
    reward, value, after, terminated, truncated = (
        leaf.reshape(leaf.shape[0], -1)
        for leaf in (seen.reward_tp1, seen.value_t, value_tp1, seen.terminated_tp1, seen.truncated_tp1)
    )
    found = variant_gae(reward, value, after, terminated, truncated, *variant_of(ppo, gamma))
    return Advantages(*(leaf.reshape(seen.value_t.shape) for leaf in found))


def variant_of(
    ppo: PpoConfig, gamma: float
) -> tuple[float, float, EpisodeEnd, Literal["gae", "brax"], Literal["time", "batch"]]:
    """Return the last arguments of `variant_gae`."""
    form: Literal["gae", "brax"] = "brax" if ppo.advantage == "brax" else "gae"
    return gamma, ppo.gae_lambda, ppo.episode_end, form, ppo.gae_axis


def vtrace_advantages(batch: Batch, ratio: Float[Array, "H N"], ppo: PpoConfig, gamma: float) -> Advantages:
    """Compute V-trace-clipped advantages of sequences `[H, N]` under importance ratios `[H, N]`.

    Where `row_end` is not `bootstrap` the last step of each sequence has advantage 0, as in a buffer whose rewards
    arrive with the next observation, so that the result of the last action is missing.
    """
    if ppo.row_end != "bootstrap":
        ratio = ratio.at[-1].set(0.0)
    return vtrace_gae(
        ratio,
        batch.reward,
        batch.value_old,
        batch.bootstrap,
        batch.done,
        batch.advantage_next,
        gamma,
        ppo.gae_lambda,
        ppo.vtrace_rho_clip,
        ppo.vtrace_c_clip,
    )


def adapt_batch(batch: Batch, rollout: Rollout, ppo: PpoConfig, gamma: float) -> Batch:
    """Apply `ppo.row_end`, or add the fields that `ppo.advantage_when = minibatch` needs to recompute advantages."""
    horizon, count = batch.reward.shape
    if ppo.row_end != "bootstrap":
        batch = batch._replace(advantage_next=jnp.zeros_like(batch.advantage_next))
        advantages = vtrace_advantages(batch, jnp.ones_like(batch.reward), ppo, gamma)
        weight = batch.weight.at[-1].set(0.0) if ppo.row_end == "mask" else batch.weight
        return batch._replace(advantage=advantages.advantage_t, target=advantages.target_t, weight=weight)
    if ppo.advantage_when == "rollout" or rollout.obs_last is None or rollout.reset_last is None:
        return batch
    seen = rollout.transitions
    last = jnp.concatenate([seen.obs_t[horizon::horizon], rollout.obs_last[None]])
    reset_last = jnp.concatenate([seen.reset_t[horizon::horizon], rollout.reset_last[None]])
    return batch._replace(
        terminated=as_sequences(seen.terminated_tp1, horizon),
        truncated=as_sequences(seen.truncated_tp1, horizon),
        obs_next=None if seen.final_obs_tp1 is None else as_sequences(seen.final_obs_tp1, horizon),
        obs_last=last.reshape(count, *last.shape[3:]),
        reset_last=jnp.broadcast_to(reset_last[..., None], last.shape[:3]).reshape(count),
    )
