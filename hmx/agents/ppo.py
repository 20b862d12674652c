"""Proximal policy optimisation (Schulman et al. 2017, arXiv:1707.06347) over masked discrete actions."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from hmx.agents.collector import Actors, Policy, Rollout, collect, start
from hmx.agents.metrics import Episode, over_time
from hmx.agents.optim import Optimiser, make_optimiser
from hmx.agents.rows import Batch, Plan, make_rows, plan_minibatches, row_advantages, spread_rows, take_rows
from hmx.agents.spread import split_along, whole
from hmx.agents.types import Algorithm, Decision, Hypers, Params
from hmx.config import derive, schedules
from hmx.config.hypers import scheduled_values
from hmx.config.schema import AlgoConfig, Config
from hmx.env.protocol import Env
from hmx.nets import Net, make_net
from hmx.rl import distributions
from hmx.rl.advantages import normalise
from hmx.rl.divergences import approx_kl, clip_frac, explained_variance
from hmx.rl.losses import clipped_surrogate
from hmx.rl.value_codec import Stats, ValueCodec, make_codec
from hmx.rl.weighted import mean
from hmx.types import Array, Key, Max, Mean, Metrics


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
    key: Key  # never advanced: every update folds its number in
    update: Array  # int32: updates done


class Parts(NamedTuple):
    """What the functions of PPO share; static."""

    algo: AlgoConfig
    num_envs: int
    horizon: int
    env: Env
    net: Net
    codec: ValueCodec
    optimiser: Optimiser


def make_parts(cfg: Config, env: Env) -> Parts:
    """What PPO is made of, for who wants more of it than an `Algorithm`.

    Raises:
        HmxError: the configuration has problems.
    """
    derive.check(cfg)
    codec = make_codec(cfg.algo.value_target)
    return Parts(
        algo=cfg.algo,
        num_envs=cfg.env.num_envs,
        horizon=derive.horizon(cfg),
        env=env,
        net=make_net(cfg.net, env.spec, codec.width, codec.head_gain),
        codec=codec,
        optimiser=make_optimiser(cfg.algo),
    )


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
        act=partial(_act, parts),
        initial_carry=parts.net.initial_carry,
        forget=_forget,
        partitions=partial(_partitions, parts),
        experience=partial(_experience, parts),
    )


def scheduled(cfg: Config, update: int) -> dict[str, float]:
    """The scheduled hyperparameters of the update of that number (from 0), on the host.

    They follow the share of `run.total_steps` that was done before it, clamped to 1.
    """
    done = schedules.progress(update * cfg.env.num_envs * cfg.algo.num_steps, cfg.run.total_steps)
    return scheduled_values(cfg.algo, done)


class Terms(NamedTuple):
    """The parts of the loss at every step of some rows, `[H, N]`, unweighted: each loss is a mean over the steps."""

    policy: Array
    value: Array
    entropy: Array
    log_prob: Array  # of the actions taken
    logits: Array  # [H, N, num_actions]


def policy_advantage(algo: AlgoConfig, batch: Batch, ratio: Array) -> Array:
    """What the policy loss multiplies its ratios `[H, N]` by."""
    advantage = row_advantages(batch, ratio, algo).advantage_t if algo.advantage == "vtrace" else batch.advantage
    # weighted after normalising: the importance weights are not to be normalised away
    return batch.row_weight[None] * (normalise(advantage, batch.weight) if algo.norm_adv else advantage)


def ppo_terms(
    parts: Parts, params: Params, stats: Stats, hypers: Hypers, batch: Batch, advantage: Array | None = None
) -> Terms:
    """The terms of the loss of some rows.

    Args:
        parts: of the algorithm.
        params: of the network.
        stats: of the value codec.
        hypers: scheduled values.
        batch: the rows.
        advantage: `[H, N]`, used as it is; None takes `policy_advantage` of these rows.
    """
    (logits, value_raw), _ = parts.net.unroll(params, batch.carry, batch.obs, batch.reset)
    log_prob = distributions.log_prob(logits, batch.legal, batch.action)
    if advantage is None:
        ratio = jnp.exp(jax.lax.stop_gradient(log_prob) - batch.log_prob_old)
        advantage = policy_advantage(parts.algo, batch, ratio)
    clip_vf_eps = hypers.get("clip_vf_eps", 0.0)
    return Terms(
        policy=clipped_surrogate(log_prob, batch.log_prob_old, advantage, hypers["clip_eps"]),
        value=parts.codec.loss(value_raw, batch.target, batch.value_old, clip_vf_eps, stats),
        entropy=distributions.entropy(logits, batch.legal),
        log_prob=log_prob,
        logits=logits,
    )


def ppo_loss(parts: Parts, params: Params, stats: Stats, hypers: Hypers, batch: Batch) -> tuple[Array, Metrics]:
    """The loss of one minibatch, and what there is to say about it.

    Clipped surrogate + `vf_coef` x value loss - `ent_coef` x entropy (Schulman et al. 2017, eq. 9), each a mean over
    the steps that are trained on.
    """
    weight, clip_eps = batch.weight, hypers["clip_eps"]
    terms = ppo_terms(parts, params, stats, hypers, batch)
    log_prob = terms.log_prob
    policy_loss, value_loss, entropy = (mean(term, weight) for term in (terms.policy, terms.value, terms.entropy))
    total = policy_loss + parts.algo.vf_coef * value_loss - hypers["ent_coef"] * entropy
    reports = {
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "total_loss": total,
        "approx_kl": approx_kl(log_prob, batch.log_prob_old, weight),
        "clip_frac": clip_frac(log_prob, batch.log_prob_old, clip_eps, weight),
        "entropy": entropy,
    }
    metrics: Metrics = {f"train/{name}": Mean.of(value) for name, value in reports.items()}
    ratio = jnp.exp(jax.lax.stop_gradient(log_prob) - batch.log_prob_old)
    metrics["train/first_ratio_error"] = Max.of(jnp.abs(ratio - 1.0) * weight)
    return total, metrics


def _init(parts: Parts, key: Key) -> TrainState:
    k_params, k_env, k_run = jax.random.split(key, 3)
    params = parts.net.init(k_params)
    carry = parts.net.initial_carry((parts.num_envs, parts.env.spec.num_agents))
    actors = start(parts.env, parts.num_envs, carry, k_env)
    return TrainState(
        params=params,
        opt_state=parts.optimiser.init(params),
        value_stats=parts.codec.init_stats(),
        **actors._asdict(),
        key=k_run,
        update=jnp.int32(0),
    )


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
    (logits, value_raw), carry = parts.net.apply(state.params, carry, obs, _per_agent(reset, obs))
    action = distributions.mode(logits, legal) if greedy else distributions.sample(key, logits, legal)
    decision = Decision(
        action=action,
        log_prob=distributions.log_prob(logits, legal, action),
        probs=distributions.probs(logits, legal),
        value=parts.codec.decode(value_raw, state.value_stats),
    )
    return decision, carry


def _value(parts: Parts, state: TrainState, carry: Any, obs: Array, reset: Array) -> Array:
    (_, value_raw), _ = parts.net.apply(state.params, carry, obs, _per_agent(reset, obs))
    return parts.codec.decode(value_raw, state.value_stats)


def _per_agent(flags: Array, obs: Array) -> Array:
    return jnp.broadcast_to(flags[:, None], obs.shape[:2])


def _forget(before: TrainState, after: TrainState) -> TrainState:
    return after._replace(params=before.params, opt_state=before.opt_state, value_stats=before.value_stats)


def _partitions(parts: Parts, state: TrainState) -> TrainState:
    split = {name: split_along(0, getattr(state, name)) for name in Actors._fields}
    split["env_state"] = split_along(parts.env.spec.state_axis, state.env_state)
    everywhere: TrainState = whole(state)
    return everywhere._replace(**split)


def policy_of(parts: Parts, state: TrainState) -> Policy:
    """The policy and value function of a state, as the collector asks for them."""
    return Policy(partial(_act, parts, state), partial(_value, parts, state))


def _rollout(parts: Parts, state: TrainState, key: Key) -> tuple[Actors, Rollout, Metrics]:
    actors = Actors(*(getattr(state, name) for name in Actors._fields))
    num_rows = parts.algo.num_steps // parts.horizon if jax.tree.leaves(state.carry) else 1
    return collect(parts.env, policy_of(parts, state), actors, key, parts.algo.num_steps, num_rows)


def _keys(state: TrainState) -> tuple[Key, Key]:
    k_rollout, k_shuffle = jax.random.split(jax.random.fold_in(state.key, state.update))
    return k_rollout, k_shuffle


def _experience(parts: Parts, state: TrainState, hypers: Hypers) -> dict[str, Array]:
    del hypers
    _, rollout, _ = _rollout(parts, state, _keys(state)[0])
    batch = make_rows(rollout, parts.algo, parts.horizon)._asdict()
    batch.update({f"carry_{i}": leaf for i, leaf in enumerate(jax.tree.leaves(batch.pop("carry")))})
    return batch


def _update(parts: Parts, state: TrainState, hypers: Hypers) -> tuple[TrainState, Metrics]:
    k_rollout, k_shuffle = _keys(state)
    actors, rollout, metrics = _rollout(parts, state, k_rollout)
    batch = make_rows(rollout, parts.algo, parts.horizon)
    plan, plan_metrics = plan_minibatches(batch, parts.algo, hypers.get("prio_beta"), k_shuffle)
    state, gradient_metrics = _learn(parts, state, batch, plan, hypers)
    state = state._replace(**actors._asdict(), update=state.update + 1)
    metrics |= plan_metrics | gradient_metrics
    metrics["train/explained_variance"] = explained_variance(batch.value_old, batch.target, batch.weight)
    return state, metrics


def fit_codec(parts: Parts, state: TrainState, batch: Batch) -> tuple[Params, Stats]:
    """Parameters and value statistics that an update begins its gradient steps with; they change no value."""
    stats = parts.codec.update_stats(state.value_stats, batch.target, batch.weight)
    params = parts.net.map_value_head(state.params, lambda head: parts.codec.rescale(head, state.value_stats, stats))
    return params, stats


def _learn(parts: Parts, state: TrainState, batch: Batch, plan: Plan, hypers: Hypers) -> tuple[TrainState, Metrics]:
    """All gradient steps on the rows of one rollout."""
    params, stats = fit_codec(parts, state, batch)

    def descend(carry: tuple[Params, optax.OptState], step: Plan) -> tuple[tuple[Params, optax.OptState], Metrics]:
        params, opt_state = carry
        minibatch = spread_rows(take_rows(batch, *step))
        grads, metrics = jax.grad(partial(ppo_loss, parts), has_aux=True)(params, stats, hypers, minibatch)
        params, opt_state = parts.optimiser.step(params, opt_state, grads, hypers["learning_rate"])
        metrics["train/grad_norm"] = Mean.of(optax.tree.norm(grads))
        return (params, opt_state), metrics

    (params, opt_state), metrics = jax.lax.scan(descend, (params, state.opt_state), plan)
    first_ratio_error = jax.tree.map(lambda leaf: leaf[0], metrics["train/first_ratio_error"])
    metrics = over_time(metrics) | {"train/first_ratio_error": first_ratio_error}
    return state._replace(params=params, opt_state=opt_state, value_stats=stats), metrics
