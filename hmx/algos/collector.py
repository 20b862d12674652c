"""The rollout collector: the only place where a policy acts in an environment during training."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Shaped

from hmx.algos.metrics import add, episode_metrics, over_time, step_metrics
from hmx.algos.sharding import step_sharded
from hmx.algos.types import Carry, Decision, Episode, FirstEpisodes, RolloutState, Starts
from hmx.envs.protocol import Env, EnvSpec, EnvState, select
from hmx.rl.normaliser import RunningStats, combine, init_stats, merge
from hmx.types import Array, Key, Metrics, Timestep, Transition

Act = Callable[[Carry, Array, Array, Array, Key], tuple[Decision, Carry]]
NormalizeFn = Callable[[RunningStats, Array], Array]


class Policy(NamedTuple):
    """A network with its parameters, as the collector uses it.

    `act(carry, obs, legal, reset, key) -> (Decision, carry)` and `value(carry, obs, reset) -> [E, A]` in reward units.
    If `plan` is given, it acts instead; it takes the state of the environment before the arguments of `act`.
    """

    act: Act
    value: Callable[[Carry, Array, Array], Array]
    plan: Callable[..., tuple[Decision, Carry]] | None = None


class Rollout(NamedTuple):
    """A rollout of `T` steps in `E` environments."""

    transitions: Transition  # [T, E, ...]
    carry: Carry  # [S, E, A, ...]: the RNN carry before each of S sequences of T / S steps
    value_last: Array  # [E, A]: value of the observation after the last step
    obs_last: Array | None = None  # [E, A, *obs_shape]: that observation
    reset_last: Array | None = None  # [E]: it is the first of an episode


class RolloutOptions(NamedTuple):
    """Optional features of a rollout; static.

    `normalize_fn(stats, obs)` normalises observations in the environment's step: each with the statistics before that
    step, which are then updated. The first observation of an episode is neither normalised nor counted.
    """

    normalize_fn: NormalizeFn | None = None
    final_obs: bool = False  # store the observation after every step
    final_value: bool = False  # store its value at every step, instead of only after truncations


DEFAULT = RolloutOptions()


def start(env: Env, num_envs: int, carry: Carry, key: Key) -> RolloutState:
    """Return newly reset environments."""
    env_state, timestep = env.reset(jax.random.split(key, num_envs))
    episode = Episode.start(num_envs)
    everywhere = jnp.ones(num_envs, bool)
    return RolloutState(
        env_state,
        timestep.obs,
        timestep.legal,
        episode,
        carry,
        reset=everywhere,
        agent_done=jnp.zeros(timestep.reward.shape, bool),
        first=FirstEpisodes(everywhere, jnp.bool_(True), episode_metrics(timestep, episode, ~everywhere)),
    )


class StepResult(NamedTuple):
    """One step of every environment."""

    decision: Decision
    timestep: Timestep
    metrics: Metrics


def play_step(
    env: Env, act: Act, actors: RolloutState, key: Key, normalize_fn: NormalizeFn | None = None
) -> tuple[RolloutState, StepResult]:
    """Act and step once in every environment."""
    num_envs = actors.obs.shape[0]
    k_act, k_env = jax.random.split(key)
    decision, carry = act(actors.carry, actors.obs, actors.legal, actors.reset, k_act)
    env_state, timestep = step_sharded(env, actors.env_state, decision.action, jax.random.split(k_env, num_envs))
    if actors.starts is not None:
        env_state, timestep = _restart(env.spec, actors.starts, env_state, timestep)
    obs_stats = actors.obs_stats
    if normalize_fn is not None and obs_stats is not None:
        timestep, obs_stats = _normalised(normalize_fn, obs_stats, timestep)
    stepped = actors._replace(env_state=env_state, carry=carry, obs_stats=obs_stats)
    after, metrics = advance(env.spec, stepped, decision.action, timestep)
    return after, StepResult(decision, timestep, metrics)


def advance(spec: EnvSpec, actors: RolloutState, action: Array, timestep: Timestep) -> tuple[RolloutState, Metrics]:
    """Return the actors after a step of every environment, and its metrics.

    `actors` has the RNN carry and the environments after the step already, and all else from before.
    """
    so_far = actors.episode
    episode = Episode(so_far.total + timestep.reward.sum(-1), so_far.length + 1, so_far.later)
    done = timestep.terminated | timestep.truncated
    first = actors.first
    metrics = step_metrics(spec, action, timestep, episode, first)
    if first is not None:
        first = first._replace(running=first.running & ~done)
    after = actors._replace(
        obs=timestep.obs,
        legal=timestep.legal,
        episode=_next_episode(episode, done, actors.starts),
        reset=done,
        agent_done=timestep.agent_done & ~done[:, None],
        first=first,
    )
    return after, metrics


def collect(
    env: Env,
    policy: Policy,
    actors: RolloutState,
    key: Key,
    num_steps: int,
    num_sequences: int = 1,
    options: RolloutOptions = DEFAULT,
) -> tuple[RolloutState, Rollout, Metrics]:
    """Play `num_steps` steps in every environment.

    The RNN carry is stored at the start of each of `num_sequences` equal parts of the `num_steps` steps.
    """
    num_envs = actors.obs.shape[0]
    length = num_steps // num_sequences
    before, normalize_fn = actors.obs_stats, options.normalize_fn
    if before is not None and normalize_fn is not None:
        # Those of this rollout, so that the ones before change once per rollout: see `combine`.
        actors = actors._replace(obs_stats=init_stats(before.mean.shape))
        normalize_fn = partial(_normalise_after, normalize_fn, before)

    def play(actors: RolloutState, step: Array) -> tuple[RolloutState, tuple[Transition, Metrics]]:
        key_t = jax.random.fold_in(key, step)
        act = policy.act if policy.plan is None else partial(policy.plan, actors.env_state)
        after, (decision, timestep, metrics) = play_step(env, act, actors, key_t, normalize_fn)
        no_reset = jnp.zeros(num_envs, bool)
        needed = jnp.ones_like(timestep.truncated) if options.final_value else timestep.truncated
        value_final = value_where(needed, lambda obs: policy.value(after.carry, obs, no_reset), timestep.final_obs)
        transition = _transition(actors, decision, timestep, value_final)
        if policy.plan is not None:
            transition = transition._replace(probs_t=decision.probs)
        if options.final_obs:
            transition = transition._replace(final_obs_tp1=timestep.final_obs)
        return after, (transition, metrics)

    def play_sequence(actors: RolloutState, number: Array) -> tuple[RolloutState, tuple[Transition, Metrics, Carry]]:
        after, (transitions, metrics) = jax.lax.scan(play, actors, number * length + jnp.arange(length))
        return after, (transitions, over_time(metrics), actors.carry)

    actors, (transitions, metrics, carry) = jax.lax.scan(play_sequence, actors, jnp.arange(num_sequences))
    if before is not None and actors.obs_stats is not None and normalize_fn is not None:
        actors = actors._replace(obs_stats=combine(before, actors.obs_stats))
    transitions = jax.tree.map(lambda leaf: leaf.reshape(num_steps, *leaf.shape[2:]), transitions)
    value_last = policy.value(actors.carry, actors.obs, actors.reset)
    rollout = Rollout(transitions, carry, value_last, actors.obs, actors.reset)
    actors, metrics = hold_first_episodes(actors, over_time(metrics))
    return actors, rollout, metrics


def hold_first_episodes(actors: RolloutState, metrics: Metrics) -> tuple[RolloutState, Metrics]:
    """Hold back the metrics of first episodes at the end of a rollout, until every environment has ended its own.

    The first means then cover one episode of every environment. Until then second episodes do not count: environments
    with short episodes play more of them.
    """
    first = actors.first
    if first is None:
        return actors, metrics
    so_far = {name: add(held, metrics[name]) for name, held in first.held.items()}
    nothing = jax.tree.map(jnp.zeros_like, so_far)
    holding = first.running.any()
    reported = jax.tree.map(partial(jnp.where, holding), nothing, so_far)
    held = jax.tree.map(partial(jnp.where, holding), so_far, nothing)
    return actors._replace(first=FirstEpisodes(first.running, holding, held)), metrics | reported


def _restart(spec: EnvSpec, starts: Starts, env_state: EnvState, timestep: Timestep) -> tuple[EnvState, Timestep]:
    """Restart the environments whose episode ended from their states in `starts`.

    Brax's auto-reset returns to the same first state every time (brax/envs/wrappers/training.py). The reward of the
    step, the kind of end and the final observation stay.
    """
    where = timestep.terminated | timestep.truncated
    if starts.later is not None:
        where &= starts.later
    env_state = select(where, starts.env_state, env_state, spec.state_axis)
    obs, legal = select(where, (starts.obs, starts.legal), (timestep.obs, timestep.legal))
    return env_state, timestep._replace(obs=obs, legal=legal)


def _next_episode(episode: Episode, done: Bool[Array, " E"], starts: Starts | None) -> Episode:
    """Return the totals before the next step; they restart at 0 where the episode ended."""
    later = episode.later
    if later is not None and starts is not None and starts.later is not None:
        later = jnp.where(done, starts.later, later)
    return Episode(jnp.where(done, 0.0, episode.total), jnp.where(done, 0, episode.length), later)


def _normalise_after(normalize_fn: NormalizeFn, before: RunningStats, stats: RunningStats, obs: Array) -> Array:
    return normalize_fn(combine(before, stats), obs)


def _normalised(normalize_fn: NormalizeFn, stats: RunningStats, timestep: Timestep) -> tuple[Timestep, RunningStats]:
    final_obs = normalize_fn(stats, timestep.final_obs)
    done = timestep.terminated | timestep.truncated
    obs = select(done, timestep.obs, final_obs)
    merged = merge(stats, timestep.final_obs, jnp.ones(timestep.reward.shape, bool))
    return timestep._replace(obs=obs, final_obs=final_obs), merged


def _transition(actors: RolloutState, decision: Decision, timestep: Timestep, value_final: Array) -> Transition:
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


def value_where(
    where: Bool[Array, " E"], value: Callable[[Array], Array], obs: Shaped[Array, "E A ..."]
) -> Float[Array, "E A"]:
    """Return `value(obs) [E, A]` where `where [E]` holds, else 0; computed only if it holds anywhere.

    A loop of at most one round, because `lax.cond` becomes a select under `vmap` and would always compute it.
    """
    zeros = jnp.zeros(obs.shape[:2], jnp.float32)
    _, values = jax.lax.while_loop(
        lambda carry: carry[0], lambda carry: (jnp.zeros((), bool), value(obs)), (where.any(), zeros)
    )
    return jnp.where(where[:, None], values, 0.0)
