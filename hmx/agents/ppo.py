"""Proximal policy optimisation (Schulman et al. 2017, arXiv:1707.06347) over discrete or continuous actions."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from hmx.agents.collector import Actors, Policy, Rollout, Wanted, actors_of, collect, partitions, start
from hmx.agents.metrics import Episode, over_time
from hmx.agents.ppo_loss import Parts, Terms, as_read, make_parts, policy_advantage, ppo_loss, ppo_terms, read_obs
from hmx.agents.reset_cache import Starts, draw
from hmx.agents.sequences import Batch, Plan, make_rows, plan_minibatches, spread_rows, take_rows
from hmx.agents.types import Algorithm, Decision, Hypers, Params
from hmx.config import schedules
from hmx.config.hypers import scheduled_values
from hmx.config.schema import Config
from hmx.env.protocol import Env, select
from hmx.rl.divergences import explained_variance
from hmx.rl.normaliser import init_stats, merge, normalise
from hmx.rl.value_codec import Stats
from hmx.types import Array, Key, Mean, Metrics

__all__ = [
    "Parts", "Terms", "TrainState", "as_read", "fit_codec", "make_parts", "make_ppo", "policy_advantage", "policy_of",
    "ppo_loss", "ppo_terms", "scheduled",
]  # fmt: skip


class TrainState(NamedTuple):
    """Everything a run needs to go on: a pytree of arrays and one typed key."""

    params: Params
    opt_state: optax.OptState
    value_stats: Stats  # of the value codec
    env_state: Any
    obs: Array  # [E, A, *obs_shape]: what the next action is taken from
    legal: Array  # [E, A, num_actions]
    episode: Episode  # [E]: episodes under way
    carry: Any  # [E, A, ...]: the network's memory; () for one without
    reset: Array  # [E] bool: `obs` is the first of an episode
    agent_done: Array  # [E, A] bool: the agent's part of the episode is over already
    obs_stats: Any  # `RunningStats` of observations; () where they are not normalised
    starts: Any  # `Starts` that every episode is followed by; () where those are drawn anew
    key: Key  # never advanced: every update folds its number in
    update: Array  # int32: updates done


def make_ppo(cfg: Config, env: Env) -> Algorithm:
    """PPO as `cfg.algo` and `cfg.net` describe it, on `cfg.env.num_envs` copies of `env`.

    Raises:
        HmxError: the configuration has problems.
    """
    parts = make_parts(cfg, env)
    return Algorithm(
        init=partial(_init, parts),
        update=partial(_update, parts),
        hypers=partial(scheduled, cfg),
        act=partial(_act_outside, parts),
        initial_carry=parts.net.initial_carry,
        forget=_forget,
        partitions=partial(partitions, env.spec),
        experience=partial(_experience, parts),
    )


def scheduled(cfg: Config, update: int) -> dict[str, float]:
    """The scheduled hyperparameters of the update of that number (from 0), on the host.

    They follow the share of `run.total_steps` that was done before it, clamped to 1.
    """
    done = schedules.progress(update * cfg.env.num_envs * cfg.algo.num_steps, cfg.run.total_steps)
    return scheduled_values(cfg.algo, done)


def _init(parts: Parts, key: Key) -> TrainState:
    k_params, k_env, k_run = jax.random.split(key, 3)
    params = parts.net.init(k_params)
    actors = _begin(parts, k_env)
    if parts.algo.obs_norm != "none":
        actors = actors._replace(obs_stats=init_stats(parts.env.spec.obs_shape))
    return TrainState(
        params=params,
        opt_state=parts.optimiser.init(params),
        value_stats=parts.codec.init_stats(),
        **actors._asdict(),
        key=k_run,
        update=jnp.int32(0),
    )


def _begin(parts: Parts, key: Key) -> Actors:
    carry = parts.net.initial_carry((parts.num_envs, parts.env.spec.num_agents))
    actors = start(parts.env, parts.num_envs, carry, key)
    if parts.resets.on_done != "first":
        return actors
    return actors._replace(starts=Starts(actors.env_state, actors.obs, actors.legal))


def _act_outside(
    parts: Parts, state: TrainState, carry: Any, obs: Array, legal: Array, reset: Array, key: Key, greedy: bool = False
) -> tuple[Decision, Any]:
    """`_act` for who does not play by way of the collector, which normalises in the environment's step."""
    algo = parts.algo
    if algo.obs_norm == "env":
        shown = normalise(state.obs_stats, obs, algo.obs_norm_ddof, algo.obs_norm_clip)
        obs = select(reset, obs.astype(shown.dtype), shown)
    return _act(parts, state, carry, obs, legal, reset, key, greedy)


def _act(
    parts: Parts,
    state: TrainState,
    carry: Any,
    obs: Array,
    legal: Array,
    reset: Array,
    key: Key,
    greedy: bool = False,
) -> tuple[Decision, Any]:
    read = read_obs(parts.algo, state.obs_stats, obs)
    (logits, value_raw), carry = parts.net.apply(state.params, carry, read, _per_agent(reset, obs))
    head = parts.head
    raw = head.mode(logits, legal) if greedy else head.sample(key, logits, legal)
    decision = Decision(
        action=head.to_action(raw),
        log_prob=head.log_prob(logits, legal, raw),
        probs=head.probs(logits, legal),
        value=parts.codec.decode(value_raw, state.value_stats),
        raw=raw,
    )
    return decision, carry


def _value(parts: Parts, state: TrainState, carry: Any, obs: Array, reset: Array) -> Array:
    read = read_obs(parts.algo, state.obs_stats, obs)
    (_, value_raw), _ = parts.net.apply(state.params, carry, read, _per_agent(reset, obs))
    return parts.codec.decode(value_raw, state.value_stats)


def _per_agent(flags: Array, obs: Array) -> Array:
    return jnp.broadcast_to(flags[:, None], obs.shape[:2])


def _forget(before: TrainState, after: TrainState) -> TrainState:
    return after._replace(
        params=before.params, opt_state=before.opt_state, value_stats=before.value_stats, obs_stats=before.obs_stats
    )


def policy_of(parts: Parts, state: TrainState) -> Policy:
    """The policy and value function of a state, as the collector asks for them."""
    return Policy(partial(_act, parts, state), partial(_value, parts, state))


def _rollout(parts: Parts, state: TrainState, key: Key) -> tuple[Actors, Rollout, Metrics]:
    algo = parts.algo
    actors, key = _starting(parts, state, key)
    num_rows = algo.num_steps // parts.horizon if jax.tree.leaves(state.carry) else 1
    both = algo.value_forward == "both"
    wanted = Wanted(
        see=partial(normalise, ddof=algo.obs_norm_ddof, clip=algo.obs_norm_clip) if algo.obs_norm == "env" else None,
        final_obs=both and algo.advantage_when == "minibatch",
        final_value=both and algo.advantage_when == "rollout",
    )
    actors, rollout, metrics = collect(
        parts.env, policy_of(parts, state), actors, key, algo.num_steps, num_rows, wanted
    )
    return (actors._replace(starts=()) if parts.resets.on_done == "rollout_cache" else actors), rollout, metrics


def _starting(parts: Parts, state: TrainState, key: Key) -> tuple[Actors, Key]:
    """Where a rollout goes on, and the key that is left for playing it."""
    actors = actors_of(state)
    on_done, full_every = parts.resets
    if not full_every and on_done != "rollout_cache":
        return actors, key
    k_play, k_full, k_cache = jax.random.split(key, 3)
    if full_every:
        due = (state.update > 0) & (state.update % full_every == 0)
        anew = _begin(parts, k_full)._replace(obs_stats=actors.obs_stats)
        actors = jax.tree.map(partial(jnp.where, due), anew, actors)
    if on_done == "rollout_cache":
        actors = actors._replace(starts=draw(parts.env, parts.num_envs, k_cache))
    return actors, k_play


def _keys(state: TrainState) -> tuple[Key, Key]:
    k_rollout, k_learn = jax.random.split(jax.random.fold_in(state.key, state.update))
    return k_rollout, k_learn


def _experience(parts: Parts, state: TrainState, hypers: Hypers) -> dict[str, Array]:
    del hypers
    _, rollout, _ = _rollout(parts, state, _keys(state)[0])
    batch = make_rows(rollout, parts.algo, parts.horizon)._asdict()
    batch.update({f"carry_{i}": leaf for i, leaf in enumerate(jax.tree.leaves(batch.pop("carry")))})
    return {name: leaf for name, leaf in batch.items() if not isinstance(leaf, tuple)}


def _update(parts: Parts, state: TrainState, hypers: Hypers) -> tuple[TrainState, Metrics]:
    k_rollout, k_learn = _keys(state)
    k_shuffle, k_entropy = jax.random.split(k_learn) if parts.env.spec.action_dim else (k_learn, None)
    actors, rollout, metrics = _rollout(parts, state, k_rollout)
    batch = make_rows(rollout, parts.algo, parts.horizon)
    plan, plan_metrics = plan_minibatches(batch, parts.algo, hypers.get("prio_beta"), k_shuffle)
    if parts.algo.obs_norm == "network":
        seen = rollout.transitions
        actors = actors._replace(obs_stats=merge(state.obs_stats, seen.obs_t, seen.alive_t))
        if parts.algo.obs_norm_update == "before_sgd":
            state = state._replace(obs_stats=actors.obs_stats)
    state, gradient_metrics = _learn(parts, state, batch, plan, hypers, k_entropy)
    state = state._replace(**actors._asdict(), update=state.update + 1)
    metrics |= plan_metrics | gradient_metrics
    metrics["train/explained_variance"] = explained_variance(batch.value_old, batch.target, batch.weight)
    metrics["train/max_entropy"] = Mean.of(parts.head.max_entropy(batch.legal), batch.weight > 0)
    metrics["train/cut_frac"] = Mean.of(rollout.transitions.truncated_tp1, rollout.transitions.alive_t)
    return state, metrics


def fit_codec(parts: Parts, state: TrainState, batch: Batch) -> tuple[Params, Stats]:
    """Parameters and value statistics that an update begins its gradient steps with; they change no value."""
    stats = parts.codec.update_stats(state.value_stats, batch.target, batch.weight)
    params = parts.net.map_value_head(state.params, lambda head: parts.codec.rescale(head, state.value_stats, stats))
    return params, stats


def _learn(
    parts: Parts, state: TrainState, batch: Batch, plan: Plan, hypers: Hypers, key: Key | None
) -> tuple[TrainState, Metrics]:
    """All gradient steps on the rows of one rollout; `key` is for continuous actions only."""
    params, stats = fit_codec(parts, state, batch)
    batch = as_read(parts.algo, state.obs_stats, batch)
    keys = None if key is None else jax.random.split(key, plan.rows.shape[0])
    Learned = tuple[Params, optax.OptState]

    def descend(carry: Learned, step: tuple[Plan, Key | None]) -> tuple[Learned, Metrics]:
        params, opt_state = carry
        rows, k_entropy = step
        minibatch = spread_rows(take_rows(batch, *rows))
        grads, metrics = jax.grad(partial(ppo_loss, parts), has_aux=True)(params, stats, hypers, minibatch, k_entropy)
        params, opt_state = parts.optimiser.step(params, opt_state, grads, hypers["learning_rate"])
        metrics["train/grad_norm"] = Mean.of(optax.tree.norm(grads))
        return (params, opt_state), metrics

    (params, opt_state), metrics = jax.lax.scan(descend, (params, state.opt_state), (plan, keys))
    first_ratio_error = jax.tree.map(lambda leaf: leaf[0], metrics["train/first_ratio_error"])
    metrics = over_time(metrics) | {"train/first_ratio_error": first_ratio_error}
    return state._replace(params=params, opt_state=opt_state, value_stats=stats), metrics
