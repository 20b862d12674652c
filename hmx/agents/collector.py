"""The rollout collector: the only place where a policy and an environment meet during training."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from hmx.agents.metrics import Episode, over_time, step_metrics
from hmx.agents.types import Decision
from hmx.env.protocol import Env, EnvState
from hmx.types import Array, Key, Metrics, Transition


class Actors(NamedTuple):
    """Where the environments stand: their states, what their agents see, and the episodes under way."""

    env_state: EnvState
    obs: Array  # [E, A, *obs_shape]: the observation the next action is taken from
    legal: Array  # [E, A, num_actions]
    episode: Episode  # [E]


class Rollout(NamedTuple):
    """`transitions [T, E, ...]` and the value of the observation after the last step, `[E, A]`."""

    transitions: Transition
    value_last: Array


def start(env: Env, num_envs: int, key: Key) -> Actors:
    """Freshly reset environments."""
    env_state, timestep = env.reset(jax.random.split(key, num_envs))
    return Actors(env_state, timestep.obs, timestep.legal, Episode.start(num_envs))


def collect(
    env: Env,
    act: Callable[[Array, Array, Key], Decision],
    value: Callable[[Array], Array],
    actors: Actors,
    key: Key,
    num_steps: int,
) -> tuple[Actors, Rollout, Metrics]:
    """Play `num_steps` steps in every environment.

    Args:
        env: the environment.
        act: `(obs, legal, key) -> Decision`.
        value: `obs [E, A, ...] -> [E, A]`, in reward units.
        actors: where to go on.
        key: the rollout's own key.
        num_steps: length of the rollout.
    """
    num_envs = actors.obs.shape[0]

    def play(actors: Actors, step: Array) -> tuple[Actors, tuple[Transition, Metrics]]:
        k_act, k_env = jax.random.split(jax.random.fold_in(key, step))
        decision = act(actors.obs, actors.legal, k_act)
        env_state, timestep = env.step(actors.env_state, decision.action, jax.random.split(k_env, num_envs))
        transition = Transition(
            obs_t=actors.obs,
            legal_t=actors.legal,
            action_t=decision.action,
            log_prob_t=decision.log_prob,
            value_t=decision.value,
            reward_tp1=timestep.reward,
            terminated_tp1=timestep.terminated,
            truncated_tp1=timestep.truncated,
            value_final_tp1=value_where(timestep.truncated, value, timestep.final_obs),
        )
        episode = Episode(actors.episode.total + timestep.reward.sum(-1), actors.episode.length + 1)
        metrics = step_metrics(env.spec, decision.action, timestep, episode)
        done = timestep.terminated | timestep.truncated
        carried = Episode(jnp.where(done, 0.0, episode.total), jnp.where(done, 0, episode.length))
        return Actors(env_state, timestep.obs, timestep.legal, carried), (transition, metrics)

    actors, (transitions, metrics) = jax.lax.scan(play, actors, jnp.arange(num_steps))
    return actors, Rollout(transitions, value(actors.obs)), over_time(metrics)


def value_where(where: Array, value: Callable[[Array], Array], obs: Array) -> Array:
    """`value(obs) [E, A]` where `where [E]` holds, else 0; not computed at all where it holds nowhere.

    A loop of at most one round, because `lax.cond` becomes a select under `vmap` and would always pay.
    """
    nothing = jnp.zeros(obs.shape[:2], jnp.float32)
    _, values = jax.lax.while_loop(
        lambda carry: carry[0], lambda carry: (jnp.zeros((), bool), value(obs)), (where.any(), nothing)
    )
    return jnp.where(where[:, None], values, 0.0)
