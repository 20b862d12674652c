"""Proximal policy optimisation (Schulman et al. 2017, arXiv:1707.06347) over masked discrete actions."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from hmx.agents.collector import Actors, collect, start
from hmx.agents.metrics import Episode, over_time
from hmx.agents.optim import Optimiser, make_optimiser
from hmx.agents.types import Algorithm, Decision, Params
from hmx.config.derive import derive
from hmx.config.schema import AlgoConfig, Config
from hmx.env.protocol import Env
from hmx.errors import HmxError
from hmx.nets import Net, make_net
from hmx.rl import distributions
from hmx.rl.advantages import gae, normalise
from hmx.rl.divergences import approx_kl, clip_frac, explained_variance
from hmx.rl.losses import clipped_surrogate
from hmx.rl.value_codec import Stats, ValueCodec, make_codec
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
    key: Key  # never advanced: every update folds its number in
    update: Array  # int32: updates done
    env_steps: Array  # uint32: steps of all environments


class Batch(NamedTuple):
    """The samples of a gradient step, `[N, A, ...]`."""

    obs: Array
    legal: Array
    action: Array
    log_prob_old: Array
    value_old: Array
    advantage: Array
    target: Array


class Parts(NamedTuple):
    """What the functions of PPO share; static."""

    algo: AlgoConfig
    num_envs: int
    env: Env
    net: Net
    codec: ValueCodec
    optimiser: Optimiser


def make_ppo(cfg: Config, env: Env) -> Algorithm:
    """PPO as `cfg.algo` and `cfg.net` describe it, on `cfg.env.num_envs` copies of `env`.

    Raises:
        HmxError: the rollout does not split into equal minibatches, or values are to be clipped that cannot be.
    """
    _check(cfg)
    codec = make_codec(cfg.algo.value_target)
    parts = Parts(
        algo=cfg.algo,
        num_envs=cfg.env.num_envs,
        env=env,
        net=make_net(cfg.net, env.spec, codec.width, codec.head_gain),
        codec=codec,
        optimiser=make_optimiser(cfg.algo, derive(cfg).num_updates),
    )
    return Algorithm(partial(_init, parts), partial(_update, parts), partial(_act, parts))


def ppo_loss(parts: Parts, params: Params, stats: Stats, batch: Batch) -> tuple[Array, Metrics]:
    """The loss of one minibatch, and what there is to say about it.

    Clipped surrogate + `vf_coef` x value loss - `ent_coef` x entropy (Schulman et al. 2017, eq. 9).
    """
    algo = parts.algo
    logits, value_raw = parts.net.apply(params, batch.obs)
    log_prob = distributions.log_prob(logits, batch.legal, batch.action)
    advantage = normalise(batch.advantage) if algo.norm_adv else batch.advantage
    policy_loss = clipped_surrogate(log_prob, batch.log_prob_old, advantage, algo.clip_eps).mean()
    value_loss = parts.codec.loss(value_raw, batch.target, batch.value_old, algo.clip_vf_eps, stats).mean()
    entropy = distributions.entropy(logits, batch.legal).mean()
    total = policy_loss + algo.vf_coef * value_loss - algo.ent_coef * entropy
    reports = {
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "total_loss": total,
        "approx_kl": approx_kl(log_prob, batch.log_prob_old),
        "clip_frac": clip_frac(log_prob, batch.log_prob_old, algo.clip_eps),
        "entropy": entropy,
    }
    return total, {f"train/{name}": Mean.of(value) for name, value in reports.items()}


def _check(cfg: Config) -> None:
    samples, minibatches = cfg.env.num_envs * cfg.algo.num_steps, cfg.algo.num_minibatches
    if samples % minibatches:
        raise HmxError(
            f"a rollout of {samples} samples does not split into {minibatches} equal minibatches",
            "choose algo.num_minibatches so that it divides env.num_envs x algo.num_steps",
        )
    if cfg.algo.clip_vf_eps and cfg.algo.value_target == "two_hot":
        raise HmxError(
            "algo.clip_vf_eps cannot clip a two_hot value", "set algo.clip_vf_eps = 0 or another algo.value_target"
        )


def _init(parts: Parts, key: Key) -> TrainState:
    k_params, k_env, k_run = jax.random.split(key, 3)
    params = parts.net.init(k_params)
    actors = start(parts.env, parts.num_envs, k_env)
    return TrainState(
        params=params,
        opt_state=parts.optimiser.init(params),
        value_stats=parts.codec.init_stats(),
        env_state=actors.env_state,
        obs=actors.obs,
        legal=actors.legal,
        episode=actors.episode,
        key=k_run,
        update=jnp.int32(0),
        env_steps=jnp.uint32(0),
    )


def _act(parts: Parts, state: TrainState, obs: Array, legal: Array, key: Key, greedy: bool = False) -> Decision:
    logits, value_raw = parts.net.apply(state.params, obs)
    action = distributions.mode(logits, legal) if greedy else distributions.sample(key, logits, legal)
    return Decision(
        action=action,
        log_prob=distributions.log_prob(logits, legal, action),
        probs=distributions.probs(logits, legal),
        value=parts.codec.decode(value_raw, state.value_stats),
    )


def _value(parts: Parts, state: TrainState, obs: Array) -> Array:
    return parts.codec.decode(parts.net.apply(state.params, obs).value_raw, state.value_stats)


def _update(parts: Parts, state: TrainState) -> tuple[TrainState, Metrics]:
    algo = parts.algo
    k_rollout, k_shuffle = jax.random.split(jax.random.fold_in(state.key, state.update))
    actors, rollout, metrics = collect(
        parts.env,
        partial(_act, parts, state),
        partial(_value, parts, state),
        Actors(state.env_state, state.obs, state.legal, state.episode),
        k_rollout,
        algo.num_steps,
    )
    seen = rollout.transitions
    advantages = gae(
        seen.reward_tp1,
        seen.value_t,
        rollout.value_last,
        seen.value_final_tp1,
        seen.terminated_tp1,
        seen.truncated_tp1,
        algo.gamma,
        algo.gae_lambda,
    )
    batch = Batch(seen.obs_t, seen.legal_t, seen.action_t, seen.log_prob_t, seen.value_t, *advantages)
    learning_rate = parts.optimiser.learning_rate(state.update)
    state, gradient_metrics = _learn(parts, state, batch, k_shuffle, learning_rate)
    env_steps = state.env_steps + jnp.uint32(parts.num_envs * algo.num_steps)
    state = state._replace(**actors._asdict(), update=state.update + 1, env_steps=env_steps)
    metrics |= gradient_metrics
    metrics["train/explained_variance"] = explained_variance(seen.value_t, advantages.target_t)
    metrics["train/learning_rate"] = Mean.of(learning_rate)
    metrics["train/env_steps"] = Max(env_steps, jnp.float32(1.0))
    return state, metrics


def _learn(parts: Parts, state: TrainState, batch: Batch, key: Key, learning_rate: Array) -> tuple[TrainState, Metrics]:
    """All gradient steps on one rollout `[T, E, A, ...]`: each epoch visits every sample once, in a new order."""
    stats = parts.codec.update_stats(state.value_stats, batch.target)
    params = parts.net.map_value_head(state.params, lambda head: parts.codec.rescale(head, state.value_stats, stats))
    num_samples = batch.action.shape[0] * batch.action.shape[1]
    flat = jax.tree.map(lambda leaf: leaf.reshape(num_samples, *leaf.shape[2:]), batch)
    k_epochs = jax.random.split(key, parts.algo.update_epochs)
    order = jax.vmap(lambda k_epoch: jax.random.permutation(k_epoch, num_samples))(k_epochs)

    def descend(carry: tuple[Params, optax.OptState], rows: Array) -> tuple[tuple[Params, optax.OptState], Metrics]:
        params, opt_state = carry
        minibatch = jax.tree.map(lambda leaf: leaf[rows], flat)
        grads, metrics = jax.grad(partial(ppo_loss, parts), has_aux=True)(params, stats, minibatch)
        params, opt_state = parts.optimiser.step(params, opt_state, grads, learning_rate)
        metrics["train/grad_norm"] = Mean.of(optax.tree.norm(grads))
        return (params, opt_state), metrics

    minibatches = order.reshape(parts.algo.update_epochs * parts.algo.num_minibatches, -1)
    (params, opt_state), metrics = jax.lax.scan(descend, (params, state.opt_state), minibatches)
    return state._replace(params=params, opt_state=opt_state, value_stats=stats), over_time(metrics)
