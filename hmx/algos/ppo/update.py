"""Proximal policy optimisation (PPO; Schulman et al. 2017, arXiv:1707.06347) over discrete or continuous actions.

`_update` is the algorithm: collect a rollout, compute advantages, and in several epochs of minibatches take gradient
steps on the clipped loss. `hmx.algos.ppo.variants` holds the switches that reproduce other implementations.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Float

from hmx.algos.collector import Policy, Rollout, collect, start
from hmx.algos.hosted import hosted_update
from hmx.algos.metrics import DORMANT_SAMPLE, dormant_units, over_time, value_loss_fall
from hmx.algos.ppo import reference as references
from hmx.algos.ppo import variants
from hmx.algos.ppo.components import PpoComponents, PpoLearner, PpoState, make_ppo_components
from hmx.algos.ppo.gradient_parts import REPORTED, gradient_parts
from hmx.algos.ppo.loss import FIRST_RATIO_ERROR, ppo_loss, weighted_losses
from hmx.algos.sequences import (
    Batch,
    MinibatchPlan,
    as_sequences,
    make_sequences,
    plan_minibatches,
    shard_sequences,
    take_sequences,
)
from hmx.algos.sharding import partitions
from hmx.algos.types import Algorithm, Carry, Decision, Hypers, Params, RolloutState, TrainState
from hmx.config import schedules
from hmx.config.schema import Config
from hmx.envs.protocol import Env
from hmx.errors import HmxError
from hmx.nets import NetOutput
from hmx.registry.algorithms import hyperparameters
from hmx.rl.advantages import gae
from hmx.rl.divergences import explained_variance
from hmx.rl.normaliser import init_stats
from hmx.rl.value_codec import Stats, symlog
from hmx.rl.weighted import variance
from hmx.types import Array, Key, Mean, Metrics


def make_ppo(cfg: Config, env: Env) -> Algorithm[PpoState]:
    """Build PPO as `cfg` configures it, on `cfg.env.num_envs` copies of `env`."""
    return make_ppo_algorithm(make_ppo_components(cfg, env))


def make_ppo_algorithm(parts: PpoComponents) -> Algorithm[PpoState]:
    """Build the algorithm that consists of `parts`."""

    def act(
        state: PpoState, carry: Carry, obs: Array, legal: Array, reset: Array, key: Key, greedy: bool = False
    ) -> tuple[Decision, Carry]:
        """Act outside the collector, on observations that the environment's step has not normalised."""
        shown = variants.env_obs(parts.cfg.ppo, state.actors.obs_stats, obs, reset)
        output, carry = _outputs(parts, state, carry, shown, reset)
        return _decision(parts, state, output, legal, key, greedy), carry

    return Algorithm(
        init=partial(_init, parts),
        update=partial(_update, parts),
        hypers=partial(scheduled, parts.cfg),
        act=act,
        initial_carry=parts.net.initial_carry,
        forget=_forget,
        partitions=partial(partitions, parts.env.spec),
        experience=partial(_experience, parts),
        hosted=hosted_update(
            parts.env.spec, partial(policy_of, parts), _keys, partial(learn_from, parts), parts.horizon
        ),
        reward_scale=parts.cfg.ppo.reward_scale,
    )


def scheduled(cfg: Config, update: int) -> dict[str, float]:
    """Return the scheduled hyperparameters of an update (numbered from 0), on the host.

    They depend on the share of `run.total_steps` that was finished before it, at most 1. With gradient reports, a
    switch says whether there is one before this update.
    """
    done = schedules.progress(update * cfg.env.num_envs * cfg.algo.num_steps, cfg.run.total_steps)
    values = hyperparameters(cfg, done)
    every = cfg.run.grad_report_every
    return {**values, REPORTED: (update + 1) % every == 0} if every else values


# The training state


def _init(parts: PpoComponents, key: Key) -> PpoState:
    k_params, k_env, k_run = jax.random.split(key, 3)
    params = parts.net.init(k_params)
    actors = _reset_envs(parts, k_env)
    if parts.cfg.ppo.obs_norm != "none":
        actors = actors._replace(obs_stats=init_stats(parts.env.spec.obs_shape))
    return TrainState(
        params=params,
        opt_state=parts.optimiser.init(params),
        actors=actors,
        learner=PpoLearner(
            parts.codec.init_stats(),
            None if parts.own is None else parts.own(),
            references.blank(params, actors.obs_stats) if parts.cfg.ppo.ref else None,
        ),
        key=k_run,
        update=jnp.int32(0),
    )


def _reset_envs(parts: PpoComponents, key: Key) -> RolloutState:
    options = parts.cfg.env
    carry = parts.net.initial_carry((options.num_envs, parts.env.spec.num_agents))
    actors = start(parts.env, options.num_envs, carry, key)
    if parts.cfg.ppo.ref:
        actors = actors._replace(reference_carry=jax.tree.map(jnp.copy, carry))
    return variants.with_starts(options, parts.cfg.starts.share, actors)


def _forget(before: PpoState, after: PpoState) -> PpoState:
    actors = after.actors._replace(obs_stats=before.actors.obs_stats)
    return after._replace(params=before.params, opt_state=before.opt_state, learner=before.learner, actors=actors)


# The policy and the value function


def policy_of(parts: PpoComponents, state: PpoState) -> Policy:
    """Return the policy and value function of a training state for the collector."""

    def act(carry: Carry, obs: Array, legal: Array, reset: Array, key: Key) -> tuple[Decision, Carry]:
        output, carry = _outputs(parts, state, carry, obs, reset)
        return _decision(parts, state, output, legal, key), carry

    def value(carry: Carry, obs: Array, reset: Array) -> Array:
        (_, value_raw), _ = _outputs(parts, state, carry, obs, reset)
        return parts.codec.decode(value_raw, state.learner.value_stats)

    return Policy(act, value, None if parts.plan is None else partial(parts.plan, state))


def _outputs(parts: PpoComponents, state: PpoState, carry: Carry, obs: Array, reset: Array) -> tuple[NetOutput, Carry]:
    read = variants.network_obs(parts.cfg.ppo, state.actors.obs_stats, obs)
    return parts.net.apply(state.params, carry, read, _per_agent(reset, obs))


def _decision(
    parts: PpoComponents, state: PpoState, output: NetOutput, legal: Array, key: Key, greedy: bool = False
) -> Decision:
    (logits, value_raw), head = output, parts.head
    raw = head.mode(logits, legal) if greedy else head.sample(key, logits, legal)
    return Decision(
        action=head.to_action(raw),
        log_prob=head.log_prob(logits, legal, raw),
        probs=head.probs(logits, legal),
        value=parts.codec.decode(value_raw, state.learner.value_stats),
        raw=raw,
    )


def _per_agent(flags: Array, obs: Array) -> Array:
    return jnp.broadcast_to(flags[:, None], obs.shape[:2])


# One update


def _update(parts: PpoComponents, state: PpoState, hypers: Hypers) -> tuple[PpoState, Metrics]:
    """Collect a rollout, compute advantages, and learn from it in epochs of minibatches."""
    k_rollout, k_learn = _keys(state)
    actors, rollout, metrics = _rollout(parts, state, k_rollout, hypers.get("start_share"))
    return learn_from(parts, state, k_learn, actors, rollout, metrics, hypers)


def learn_from(
    parts: PpoComponents,
    state: PpoState,
    key: Key,
    actors: RolloutState,
    rollout: Rollout,
    metrics: Metrics,
    hypers: Hypers,
) -> tuple[PpoState, Metrics]:
    """Compute the advantages of a rollout, and take its gradient steps; `actors` and `metrics` are those after it."""
    cfg = parts.cfg
    k_shuffle, k_loss = jax.random.split(key) if parts.random_loss else (key, None)
    batch, own, own_metrics = _learned_from(parts, state, rollout)
    state = state._replace(learner=state.learner._replace(own=own))
    batch, actors = _with_reference(parts, state, actors, rollout, batch)
    plan, plan_metrics = plan_minibatches(batch, cfg.ppo, hypers.get("prio_beta"), k_shuffle)
    after = variants.update_obs_stats(cfg.ppo, actors, rollout)
    # the network normalises by the statistics of the rollout until the gradient steps are done
    state = state._replace(actors=after if cfg.ppo.obs_norm_update == "before_sgd" else actors)
    state, gradient_metrics = _learn(parts, state, batch, plan, hypers, k_loss)
    state = state._replace(actors=after, update=state.update + 1)
    if batch.reference is not None and "train/ref_kl" not in gradient_metrics:
        what = (
            f"cannot use ppo.ref: the loss of {cfg.algo.name} has no penalty for the distance from a reference policy"
        )
        raise HmxError(what, "drop ppo.ref, or add hmx.toolkit.reference_penalty and its metric to that loss")
    metrics |= own_metrics | plan_metrics | gradient_metrics
    metrics["train/advantage_std"] = Mean.of(jnp.sqrt(variance(batch.advantage, batch.weight)))
    metrics["train/explained_variance"] = explained_variance(batch.value_old, batch.target, batch.weight)
    metrics["train/max_entropy"] = Mean.of(parts.head.max_entropy(batch.legal), batch.weight > 0)
    metrics["train/truncated_frac"] = Mean.of(rollout.transitions.truncated_tp1, rollout.transitions.alive_t)
    return state, metrics


def _keys(state: PpoState) -> tuple[Key, Key]:
    k_rollout, k_learn = jax.random.split(jax.random.fold_in(state.key, state.update))
    return k_rollout, k_learn


def _rollout(
    parts: PpoComponents, state: PpoState, key: Key, start_share: Float[Array, ""] | None = None
) -> tuple[RolloutState, Rollout, Metrics]:
    cfg, policy, begin = parts.cfg, policy_of(parts, state), partial(_reset_envs, parts)
    actors, key = variants.before_rollout(cfg.env, parts.env, state, key, begin, start_share)
    num_sequences = cfg.algo.num_steps // parts.horizon if jax.tree.leaves(actors.carry) else 1
    options = variants.rollout_options(cfg.ppo)
    options = options._replace(final_obs=options.final_obs or parts.final_obs)
    actors, rollout, metrics = collect(parts.env, policy, actors, key, cfg.algo.num_steps, num_sequences, options)
    return variants.after_rollout(cfg.env, actors), rollout, metrics


def _learned_from(parts: PpoComponents, state: PpoState, rollout: Rollout) -> tuple[Batch, Any, Metrics]:
    """Return the batch of a rollout, the new `state.learner.own`, and metrics."""
    if parts.rollout is None:
        return make_batch(rollout, parts.cfg, parts.horizon), state.learner.own, {}
    return parts.rollout(parts, state, rollout)


def _with_reference(
    parts: PpoComponents, state: PpoState, actors: RolloutState, rollout: Rollout, batch: Batch
) -> tuple[Batch, RolloutState]:
    """Add the outputs of the reference policy to the batch, and its RNN carry after the rollout to the actors."""
    reference = state.learner.reference
    if reference is None:
        return batch, actors
    found, carry = references.outputs(parts.cfg.ppo, parts.net, reference, actors.reference_carry, rollout.transitions)
    batch = batch._replace(reference=as_sequences(found, parts.horizon))
    return batch, actors._replace(reference_carry=carry)


def make_batch(rollout: Rollout, cfg: Config, horizon: int) -> Batch:
    """Compute the advantages and value targets of a rollout, and cut it into sequences of `horizon` steps.

    With `ppo.advantage_scale = symlog` the advantage A of a value V is `symlog(V + A) - symlog(V)`.
    """
    seen = rollout.transitions
    if cfg.ppo.reward_scale != 1.0:
        seen = seen._replace(reward_tp1=seen.reward_tp1 * cfg.ppo.reward_scale)
        rollout = rollout._replace(transitions=seen)
    if variants.has_standard_advantages(cfg.ppo):
        advantages = gae(
            seen.reward_tp1,
            seen.value_t,
            rollout.value_last,
            seen.value_final_tp1,
            seen.terminated_tp1,
            seen.truncated_tp1,
            cfg.algo.gamma,
            cfg.ppo.gae_lambda,
        )
    else:
        advantages = variants.rollout_advantages(rollout, cfg.ppo, cfg.algo.gamma)
    batch = variants.adapt_batch(make_sequences(rollout, advantages, horizon), rollout, cfg.ppo, cfg.algo.gamma)
    if cfg.ppo.advantage_scale == "symlog":
        gain = symlog(batch.value_old + batch.advantage) - symlog(batch.value_old)
        batch = batch._replace(advantage=gain)
    return batch


def fit_codec(parts: PpoComponents, state: PpoState, batch: Batch) -> tuple[Params, Stats]:
    """Return parameters and value statistics adapted to the targets of a batch; no value changes."""
    before = state.learner.value_stats
    stats = parts.codec.update_stats(before, batch.target, batch.weight)
    params = parts.net.map_value_head(state.params, lambda head: parts.codec.rescale(head, before, stats))
    return params, stats


def _learn(
    parts: PpoComponents, state: PpoState, batch: Batch, plan: MinibatchPlan, hypers: Hypers, key: Key | None
) -> tuple[PpoState, Metrics]:
    """Take one gradient step per minibatch of every epoch; `key` is for a loss that draws random numbers."""
    params, stats = fit_codec(parts, state, batch)
    batch = variants.network_batch(parts.cfg.ppo, state.actors.obs_stats, batch)
    keys = None if key is None else jax.random.split(key, plan.numbers.shape[0])
    loss = partial(parts.loss or ppo_loss, parts)
    Learned = tuple[Params, optax.OptState]

    def gradient_step(carry: Learned, step: tuple[MinibatchPlan, Key | None]) -> tuple[Learned, Metrics]:
        params, opt_state = carry
        drawn, k_loss = step
        minibatch = shard_sequences(take_sequences(batch, *drawn))
        grads, metrics = jax.grad(loss, has_aux=True)(params, stats, hypers, minibatch, k_loss)
        params, opt_state = parts.optimiser.step(params, opt_state, grads, hypers["learning_rate"])
        metrics["train/grad_norm"] = Mean.of(optax.tree.norm(grads))
        if REPORTED in hypers:
            again = None if k_loss is None else jax.random.clone(k_loss)
            losses = partial(weighted_losses, parts, stats=stats, hypers=hypers, batch=minibatch, key=again)
            metrics |= gradient_parts(losses, carry[0], hypers[REPORTED] > 0)
        return (params, opt_state), metrics

    (params, opt_state), metrics = jax.lax.scan(gradient_step, (params, state.opt_state), (plan, keys))
    fall = {} if parts.cfg.ppo.prio_alpha else value_loss_fall(metrics["train/value_loss"], parts.cfg.ppo.update_epochs)
    first_ratio_error = metrics.pop(FIRST_RATIO_ERROR, None)
    metrics = over_time(metrics) | fall
    if first_ratio_error is not None:
        # of the first minibatch alone: later ones come after a gradient step, when ratios differ from 1 in any case
        metrics[FIRST_RATIO_ERROR] = jax.tree.map(lambda leaf: leaf[0], first_ratio_error)
    if parts.net.hidden:
        few = max(DORMANT_SAMPLE // parts.horizon, 1)
        sample = take_sequences(batch, plan.numbers[-1, :few], plan.sequence_weight[-1, :few])
        metrics |= dormant_units(parts.net.hidden(params, sample.carry, sample.obs, sample.reset))
    learner = state.learner._replace(value_stats=stats)
    return state._replace(params=params, opt_state=opt_state, learner=learner), metrics


def _experience(parts: PpoComponents, state: PpoState, hypers: Hypers) -> dict[str, Array]:
    actors, rollout, _ = _rollout(parts, state, _keys(state)[0], hypers.get("start_share"))
    learned = _learned_from(parts, state, rollout)[0]
    batch = _with_reference(parts, state, actors, rollout, learned)[0]._asdict()
    for name in ("carry", "own"):
        batch |= {f"{name}_{i}": leaf for i, leaf in enumerate(jax.tree.leaves(batch.pop(name)))}
    return {name: leaf for name, leaf in batch.items() if leaf is not None}
