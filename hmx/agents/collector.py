"""The rollout collector: the only place where a policy and an environment meet during training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from hmx.agents.metrics import Episode, over_time, step_metrics
from hmx.agents.reset_cache import go_back
from hmx.agents.sharding import split_along, step_apart, whole
from hmx.agents.types import Decision
from hmx.env.protocol import Env, EnvSpec, EnvState, select
from hmx.rl.normaliser import RunningStats, merge
from hmx.types import Array, Key, Metrics, Timestep, Transition

Carry = Any


class Actors(NamedTuple):
    """Where the environments stand: their states, what their agents see and remember, and the episodes under way."""

    env_state: EnvState
    obs: Array  # [E, A, *obs_shape]: the observation the next action is taken from
    legal: Array  # [E, A, num_actions]
    episode: Episode  # [E]
    carry: Carry  # [E, A, ...]: the network's memory before it sees `obs`; () for one without
    reset: Array  # [E] bool: `obs` is the first of an episode, so the memory is to be emptied
    agent_done: Array  # [E, A] bool: the agent's part of the episode is over already
    obs_stats: Any = ()  # `RunningStats` of observations; () for a learner without
    starts: Any = ()  # `Starts` that episodes are followed by; () where the environment draws fresh ones


def actors_of(state: Any) -> Actors:
    """The part of a learner's state that has the fields of `Actors`."""
    return Actors(*(getattr(state, name) for name in Actors._fields))


class Policy(NamedTuple):
    """What the collector asks a network.

    `act(carry, obs, legal, reset, key) -> (Decision, carry)` and `value(carry, obs, reset) -> [E, A]` in reward units.
    """

    act: Callable[[Carry, Array, Array, Array, Key], tuple[Decision, Carry]]
    value: Callable[[Carry, Array, Array], Array]


class Rollout(NamedTuple):
    """What was played, and what its learner needs besides."""

    transitions: Transition  # [T, E, ...]
    carry: Carry  # [R, E, A, ...]: the memory before each of R rows of T / R steps
    value_last: Array  # [E, A]: value of the observation after the last step
    obs_last: Any = ()  # [E, A, *obs_shape]: that observation
    reset_last: Any = ()  # [E]: it is the first of an episode


class Wanted(NamedTuple):
    """What a learner wants of its rollouts besides the usual; static.

    `see(stats, obs)` normalises observations in the environment's step: each with the statistics before that step,
    which then take it in. The first observation of an episode is neither normalised nor counted.
    """

    see: Callable[[RunningStats, Array], Array] | None = None
    final_obs: bool = False  # the observation that every step led to
    final_value: bool = False  # its value, at every step rather than only where an episode was cut


USUAL = Wanted()


def start(env: Env, num_envs: int, carry: Carry, key: Key) -> Actors:
    """Freshly reset environments."""
    env_state, timestep = env.reset(jax.random.split(key, num_envs))
    return Actors(
        env_state,
        timestep.obs,
        timestep.legal,
        Episode.start(num_envs),
        carry,
        reset=jnp.ones(num_envs, bool),
        agent_done=jnp.zeros(timestep.reward.shape, bool),
    )


class Played(NamedTuple):
    """One step of every environment."""

    decision: Decision
    timestep: Timestep
    metrics: Metrics


def play_step(
    env: Env,
    act: Callable[[Carry, Array, Array, Array, Key], tuple[Decision, Carry]],
    actors: Actors,
    key: Key,
    see: Callable[[RunningStats, Array], Array] | None = None,
) -> tuple[Actors, Played]:
    """Act and step once in every environment.

    Args:
        env: the environment.
        act: as of `Policy`.
        actors: where to go on.
        key: the step's own key.
        see: as of `Wanted`.
    """
    num_envs = actors.obs.shape[0]
    k_act, k_env = jax.random.split(key)
    decision, carry = act(actors.carry, actors.obs, actors.legal, actors.reset, k_act)
    env_state, timestep = step_apart(env, actors.env_state, decision.action, jax.random.split(k_env, num_envs))
    if actors.starts:
        env_state, timestep = go_back(env.spec, actors.starts, env_state, timestep)
    obs_stats = actors.obs_stats
    if see is not None:
        timestep, obs_stats = _seen(see, obs_stats, timestep)
    episode = Episode(actors.episode.total + timestep.reward.sum(-1), actors.episode.length + 1)
    metrics = step_metrics(env.spec, decision.action, timestep, episode)
    done = timestep.terminated | timestep.truncated
    carried = Episode(jnp.where(done, 0.0, episode.total), jnp.where(done, 0, episode.length))
    agent_done = timestep.agent_done & ~done[:, None]
    after = Actors(env_state, timestep.obs, timestep.legal, carried, carry, done, agent_done, obs_stats, actors.starts)
    return after, Played(decision, timestep, metrics)


def collect(
    env: Env, policy: Policy, actors: Actors, key: Key, num_steps: int, num_rows: int = 1, wanted: Wanted = USUAL
) -> tuple[Actors, Rollout, Metrics]:
    """Play `num_steps` steps in every environment.

    Args:
        env: the environment.
        policy: how actions are chosen and observations valued.
        actors: where to go on.
        key: the rollout's own key.
        num_steps: length of the rollout.
        num_rows: parts of equal length at whose starts the memory is kept; divides `num_steps`.
        wanted: what else is to be stored or done.
    """
    num_envs = actors.obs.shape[0]
    per_row = num_steps // num_rows

    def play(actors: Actors, step: Array) -> tuple[Actors, tuple[Transition, Metrics]]:
        key_t = jax.random.fold_in(key, step)
        after, (decision, timestep, metrics) = play_step(env, policy.act, actors, key_t, wanted.see)
        going_on = jnp.zeros(num_envs, bool)
        asked = jnp.ones_like(timestep.truncated) if wanted.final_value else timestep.truncated
        value_final = value_where(asked, lambda obs: policy.value(after.carry, obs, going_on), timestep.final_obs)
        transition = _transition(actors, decision, timestep, value_final)
        if wanted.final_obs:
            transition = transition._replace(final_obs_tp1=timestep.final_obs)
        return after, (transition, metrics)

    def play_row(actors: Actors, row: Array) -> tuple[Actors, tuple[Transition, Metrics, Carry]]:
        after, (transitions, metrics) = jax.lax.scan(play, actors, row * per_row + jnp.arange(per_row))
        return after, (transitions, over_time(metrics), actors.carry)

    actors, (transitions, metrics, carry) = jax.lax.scan(play_row, actors, jnp.arange(num_rows))
    transitions = jax.tree.map(lambda leaf: leaf.reshape(num_steps, *leaf.shape[2:]), transitions)
    value_last = policy.value(actors.carry, actors.obs, actors.reset)
    return actors, Rollout(transitions, carry, value_last, actors.obs, actors.reset), over_time(metrics)


def _seen(
    see: Callable[[RunningStats, Array], Array], stats: RunningStats, timestep: Timestep
) -> tuple[Timestep, RunningStats]:
    shown = see(stats, timestep.final_obs)
    done = timestep.terminated | timestep.truncated
    obs = select(done, timestep.obs, shown)
    merged = merge(stats, timestep.final_obs, jnp.ones(timestep.reward.shape, bool))
    return timestep._replace(obs=obs, final_obs=shown), merged


def _transition(actors: Actors, decision: Decision, timestep: Timestep, value_final: Array) -> Transition:
    return Transition(
        obs_t=actors.obs,
        legal_t=actors.legal,
        reset_t=actors.reset,
        alive_t=~actors.agent_done,
        action_t=decision.action if decision.raw is None else decision.raw,
        log_prob_t=decision.log_prob,
        value_t=decision.value,
        reward_tp1=timestep.reward,
        terminated_tp1=timestep.agent_done,
        truncated_tp1=timestep.truncated[:, None] & ~timestep.agent_done,
        value_final_tp1=value_final,
    )


def partitions(spec: EnvSpec, state: Any) -> Any:
    """How a state that has the fields of `Actors` is split over several devices.

    What belongs to one environment is where that environment is; all else is everywhere.
    """

    def split(held: Any) -> dict[str, Any]:
        fields = {name: split_along(0, getattr(held, name)) for name in held._fields}
        return {**fields, "env_state": split_along(spec.state_axis, held.env_state)}

    actors = actors_of(state)
    fields = split(actors._replace(obs_stats=(), starts=()))
    starts = state.starts._replace(**split(state.starts)) if state.starts else ()
    return whole(state)._replace(**{**fields, "obs_stats": whole(state.obs_stats), "starts": starts})


def value_where(where: Array, value: Callable[[Array], Array], obs: Array) -> Array:
    """`value(obs) [E, A]` where `where [E]` holds, else 0; not computed at all where it holds nowhere.

    A loop of at most one round, because `lax.cond` becomes a select under `vmap` and would always pay.
    """
    nothing = jnp.zeros(obs.shape[:2], jnp.float32)
    _, values = jax.lax.while_loop(
        lambda carry: carry[0], lambda carry: (jnp.zeros((), bool), value(obs)), (where.any(), nothing)
    )
    return jnp.where(where[:, None], values, 0.0)
