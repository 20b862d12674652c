"""Proximal policy optimisation (PPO; Schulman et al. 2017, arXiv:1707.06347) over discrete or continuous actions.

`_update` is the algorithm: collect a rollout, compute advantages, and in several epochs of minibatches take gradient
steps on the clipped loss. `hmx.algos.ppo.variants` holds the switches that reproduce other implementations.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Float

from hmx.algos.collector import Policy, Rollout, collect, start
from hmx.algos.hosted import hosted_update
from hmx.algos.metrics import DORMANT_SAMPLE, dormant_units, over_time, value_loss_fall
from hmx.algos.optim import Optimiser, make_optimiser
from hmx.algos.ppo import reference as references
from hmx.algos.ppo import variants
from hmx.algos.ppo.aspects import value_weight
from hmx.algos.ppo.gradient_parts import REPORTED, gradient_parts
from hmx.algos.ppo.reference import ReferencePolicy
from hmx.algos.search import SearchAct
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
from hmx.algos.types import Algorithm, Carry, Decision, HostedUpdate, Hypers, Params, RolloutState, TrainState
from hmx.config import schedules
from hmx.config.schema import Config, PpoConfig
from hmx.envs.protocol import Env
from hmx.errors import HmxError
from hmx.nets import Net, make_net
from hmx.registry.algorithms import hyperparameters
from hmx.registry.derive import horizon
from hmx.rl import policies
from hmx.rl.advantages import gae, normalise
from hmx.rl.divergences import approx_kl, clip_frac, explained_variance
from hmx.rl.losses import clipped_surrogate
from hmx.rl.normaliser import init_stats
from hmx.rl.policies import PolicyHead
from hmx.rl.value_codec import Stats, ValueCodec, make_codec, symlog
from hmx.rl.weighted import mean, variance
from hmx.types import Array, Key, Max, Mean, Metrics


class PpoLearner(NamedTuple):
    """The part of the training state that only PPO has."""

    value_stats: Stats  # of the value codec
    own: Any = None  # what the hooks of `PpoComponents` keep from one update to the next
    reference: ReferencePolicy | None = None  # of `ppo.ref`; kept in a file of the run, not in its checkpoints


PpoState = TrainState[PpoLearner]

_FIRST_RATIO_ERROR = "train/first_ratio_error"


class PpoComponents(NamedTuple):
    """The common data of PPO's functions; static.

    An algorithm that extends PPO replaces some components and calls `make_ppo_algorithm`. `plan`, `rollout`, `loss` and
    `own` are hooks, None in PPO:

    - `plan` chooses the actions of rollouts, in place of the policy.
    - `rollout(parts, state, rollout)` returns what is learned from a rollout, in place of `make_batch`: the batch, the
      new `state.learner.own`, and metrics.
    - `loss` stands in for `ppo_loss`, with its arguments and results. With `ppo.ref` it adds
      `hmx.algos.ppo.reference.reference_penalty` and its metric.
    - `own()` returns the first `state.learner.own`, a pytree of arrays.
    """

    cfg: Config
    horizon: int  # steps of a training sequence
    env: Env
    net: Net
    codec: ValueCodec
    optimiser: Optimiser
    head: PolicyHead = policies.CATEGORICAL
    plan: SearchAct | None = None
    rollout: Callable[[PpoComponents, PpoState, Rollout], tuple[Batch, Any, Metrics]] | None = None
    loss: Callable[..., tuple[Array, Metrics]] | None = None
    own: Callable[[], Any] | None = None
    final_obs: bool = False  # `rollout` gets `transitions.final_obs_tp1`: the observation after each step


def make_ppo_components(cfg: Config, env: Env) -> PpoComponents:
    """Build network, policy head, value codec and optimiser."""
    codec = make_codec(cfg.ppo.value_target)
    return PpoComponents(
        cfg=cfg,
        horizon=horizon(cfg.net, cfg.ppo, cfg.algo.num_steps),
        env=env,
        net=make_net(cfg.net, env.spec, codec.width, codec.head_gain),
        codec=codec,
        optimiser=make_optimiser(cfg.algo),
        head=make_head(cfg, env.spec.action_dim, env.spec.action_parts),
    )


def make_head(cfg: Config, action_dim: int, parts: tuple[int, ...] = ()) -> PolicyHead:
    """Return the distribution over actions: masked categorical, one per part, or tanh-normal if continuous."""
    if parts:
        return policies.multi_categorical(parts)
    if not action_dim:
        return policies.CATEGORICAL
    return policies.tanh_gaussian(action_dim, cfg.net.std, cfg.net.std_min, cfg.ppo.entropy)


def make_ppo(cfg: Config, env: Env) -> Algorithm[PpoState]:
    """Build PPO as `cfg` configures it, on `cfg.env.num_envs` copies of `env`."""
    return make_ppo_algorithm(make_ppo_components(cfg, env))


def make_ppo_algorithm(parts: PpoComponents) -> Algorithm[PpoState]:
    """Build the algorithm that consists of `parts`."""
    return Algorithm(
        init=partial(_init, parts),
        update=partial(_update, parts),
        hypers=partial(scheduled, parts.cfg),
        act=partial(_act_on_raw, parts),
        initial_carry=parts.net.initial_carry,
        forget=_forget,
        partitions=partial(partitions, parts.env.spec),
        experience=partial(_experience, parts),
        hosted=_hosted(parts),
        reward_scale=parts.cfg.ppo.reward_scale,
    )


def _hosted(parts: PpoComponents) -> HostedUpdate | None:
    if parts.env.spec.simulator is None:
        return None
    policy, learn = partial(policy_of, parts), partial(learn_from, parts)
    return hosted_update(parts.env.spec, policy, _keys, learn, parts.horizon, parts.final_obs)


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
    plan = None if parts.plan is None else partial(parts.plan, state)
    return Policy(partial(_act, parts, state), partial(_value, parts, state), plan)


def _act(
    parts: PpoComponents,
    state: PpoState,
    carry: Carry,
    obs: Array,
    legal: Array,
    reset: Array,
    key: Key,
    greedy: bool = False,
) -> tuple[Decision, Carry]:
    read = variants.network_obs(parts.cfg.ppo, state.actors.obs_stats, obs)
    (logits, value_raw), carry = parts.net.apply(state.params, carry, read, _per_agent(reset, obs))
    head = parts.head
    raw = head.mode(logits, legal) if greedy else head.sample(key, logits, legal)
    decision = Decision(
        action=head.to_action(raw),
        log_prob=head.log_prob(logits, legal, raw),
        probs=head.probs(logits, legal),
        value=parts.codec.decode(value_raw, state.learner.value_stats),
        raw=raw,
    )
    return decision, carry


def _act_on_raw(
    parts: PpoComponents,
    state: PpoState,
    carry: Carry,
    obs: Array,
    legal: Array,
    reset: Array,
    key: Key,
    greedy: bool = False,
) -> tuple[Decision, Carry]:
    """Call `_act` outside the collector, on observations that the environment's step has not normalised."""
    shown = variants.env_obs(parts.cfg.ppo, state.actors.obs_stats, obs, reset)
    return _act(parts, state, carry, shown, legal, reset, key, greedy)


def _value(parts: PpoComponents, state: PpoState, carry: Carry, obs: Array, reset: Array) -> Array:
    read = variants.network_obs(parts.cfg.ppo, state.actors.obs_stats, obs)
    (_, value_raw), _ = parts.net.apply(state.params, carry, read, _per_agent(reset, obs))
    return parts.codec.decode(value_raw, state.learner.value_stats)


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
    k_shuffle, k_entropy = jax.random.split(key) if parts.env.spec.action_dim else (key, None)
    batch, own, own_metrics = _learned_from(parts, state, rollout)
    state = state._replace(learner=state.learner._replace(own=own))
    batch, actors = _with_reference(parts, state, actors, rollout, batch)
    plan, plan_metrics = plan_minibatches(batch, cfg.ppo, hypers.get("prio_beta"), k_shuffle)
    after = variants.update_obs_stats(cfg.ppo, actors, rollout)
    # the network normalises by the statistics of the rollout until the gradient steps are done
    state = state._replace(actors=after if cfg.ppo.obs_norm_update == "before_sgd" else actors)
    state, gradient_metrics = _learn(parts, state, batch, plan, hypers, k_entropy)
    state = state._replace(actors=after, update=state.update + 1)
    if batch.reference is not None and "train/ref_kl" not in gradient_metrics:
        what = f"cannot use ppo.ref: the loss of {cfg.algo.name} has no penalty of the distance from a reference policy"
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
    """Take one gradient step per minibatch of every epoch; `key` is for continuous actions only."""
    params, stats = fit_codec(parts, state, batch)
    batch = variants.network_batch(parts.cfg.ppo, state.actors.obs_stats, batch)
    keys = None if key is None else jax.random.split(key, plan.numbers.shape[0])
    loss = partial(parts.loss or ppo_loss, parts)
    Learned = tuple[Params, optax.OptState]

    def gradient_step(carry: Learned, step: tuple[MinibatchPlan, Key | None]) -> tuple[Learned, Metrics]:
        params, opt_state = carry
        drawn, k_entropy = step
        minibatch = shard_sequences(take_sequences(batch, *drawn))
        grads, metrics = jax.grad(loss, has_aux=True)(params, stats, hypers, minibatch, k_entropy)
        params, opt_state = parts.optimiser.step(params, opt_state, grads, hypers["learning_rate"])
        metrics["train/grad_norm"] = Mean.of(optax.tree.norm(grads))
        if REPORTED in hypers:
            again = None if k_entropy is None else jax.random.clone(k_entropy)
            losses = partial(weighted_losses, parts, stats=stats, hypers=hypers, batch=minibatch, key=again)
            metrics |= gradient_parts(losses, carry[0], hypers[REPORTED] > 0)
        return (params, opt_state), metrics

    (params, opt_state), metrics = jax.lax.scan(gradient_step, (params, state.opt_state), (plan, keys))
    fall = {} if parts.cfg.ppo.prio_alpha else value_loss_fall(metrics["train/value_loss"], parts.cfg.ppo.update_epochs)
    first_ratio_error = metrics.pop(_FIRST_RATIO_ERROR, None)
    metrics = over_time(metrics) | fall
    if first_ratio_error is not None:
        # of the first minibatch alone: later ones come after a gradient step, when ratios differ from 1 in any case
        metrics[_FIRST_RATIO_ERROR] = jax.tree.map(lambda leaf: leaf[0], first_ratio_error)
    if parts.net.hidden:
        few = max(DORMANT_SAMPLE // parts.horizon, 1)
        sample = take_sequences(batch, plan.numbers[-1, :few], plan.sequence_weight[-1, :few])
        metrics |= dormant_units(parts.net.hidden(params, sample.carry, sample.obs, sample.reset))
    learner = state.learner._replace(value_stats=stats)
    return state._replace(params=params, opt_state=opt_state, learner=learner), metrics


# The loss


def ppo_loss(
    parts: PpoComponents, params: Params, stats: Stats, hypers: Hypers, batch: Batch, key: Key | None = None
) -> tuple[Float[Array, ""], Metrics]:
    """Compute the loss of a minibatch and its metrics.

    Clipped surrogate + `value_weight` x value loss - `ent_coef` x entropy (Schulman et al. 2017, eq. 9) +
    `ref_kl_coef` x KL(policy || reference) if there is a reference, each a mean over the steps that are trained on.
    """
    weight, clip_eps = batch.weight, hypers["clip_eps"]
    terms = ppo_terms(parts, params, stats, hypers, batch, key=key)
    log_prob = terms.log_prob
    policy_loss, value_loss, entropy = (mean(term, weight) for term in (terms.policy, terms.value, terms.entropy))
    total = policy_loss + value_weight(parts.cfg.ppo) * value_loss - hypers["ent_coef"] * entropy
    penalty, penalty_metrics = references.reference_penalty(parts.head, terms.logits, hypers, batch)
    total += penalty
    reports = {
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "total_loss": total,
        "approx_kl": approx_kl(log_prob, batch.log_prob_old, weight),
        "clip_frac": clip_frac(log_prob, batch.log_prob_old, clip_eps, weight),
        "entropy": entropy,
    }
    std = parts.head.std(terms.logits)
    if std.shape[-1]:
        reports["std"] = mean(std.mean(-1), weight)
    metrics: Metrics = {f"train/{name}": Mean.of(value) for name, value in reports.items()} | penalty_metrics
    ratio = jnp.exp(jax.lax.stop_gradient(log_prob) - batch.log_prob_old)
    metrics[_FIRST_RATIO_ERROR] = Max.of(jnp.abs(ratio - 1.0) * weight)
    return total, metrics


def weighted_losses(
    parts: PpoComponents, params: Params, stats: Stats, hypers: Hypers, batch: Batch, key: Key | None = None
) -> dict[str, Array]:
    """Return the terms of `ppo_loss` that only the policy has, each with its weight and sign in the loss.

    They are `task`, `entropy`, and `kl` if there is a reference.
    """
    terms = ppo_terms(parts, params, stats, hypers, batch, key=key)
    found = {
        "task": mean(terms.policy, batch.weight),
        "entropy": -hypers["ent_coef"] * mean(terms.entropy, batch.weight),
    }
    if batch.reference is not None:
        found["kl"] = jnp.asarray(references.reference_penalty(parts.head, terms.logits, hypers, batch)[0], jnp.float32)
    return found


class Terms(NamedTuple):
    """The terms of the loss at every step of a batch, `[H, N]`, unweighted: each loss is a mean over the steps."""

    policy: Array
    value: Array
    entropy: Array
    log_prob: Array  # of the actions taken
    logits: Array  # [H, N, ...]: output of the policy head


def ppo_terms(
    parts: PpoComponents,
    params: Params,
    stats: Stats,
    hypers: Hypers,
    batch: Batch,
    advantage: Float[Array, "H N"] | None = None,
    key: Key | None = None,
) -> Terms:
    """Compute the terms of the loss of a batch.

    `batch` holds observations as the network reads them (`variants.network_batch`). An `advantage` `[H, N]` is used
    unchanged; None takes `policy_advantage` of the batch. `key` is for an entropy estimated from samples; None takes
    its expectation.
    """
    (logits, value_raw), carry = parts.net.unroll(params, batch.carry, batch.obs, batch.reset)
    batch = variants.recompute_advantages(
        parts.cfg.ppo,
        parts.cfg.algo.gamma,
        parts.net,
        lambda raw: parts.codec.decode(raw, stats),
        params,
        batch,
        value_raw,
        carry,
    )
    log_prob = parts.head.log_prob(logits, batch.legal, batch.action)
    if advantage is None:
        ratio = jnp.exp(jax.lax.stop_gradient(log_prob) - batch.log_prob_old)
        advantage = policy_advantage(parts.cfg.ppo, parts.cfg.algo.gamma, batch, ratio)
    clip_vf_eps = hypers.get("clip_vf_eps", 0.0)
    return Terms(
        policy=clipped_surrogate(log_prob, batch.log_prob_old, advantage, hypers["clip_eps"]),
        value=parts.codec.loss(value_raw, batch.target, batch.value_old, clip_vf_eps, stats),
        entropy=parts.head.entropy(logits, batch.legal, key),
        log_prob=log_prob,
        logits=logits,
    )


def policy_advantage(ppo: PpoConfig, gamma: float, batch: Batch, ratio: Float[Array, "H N"]) -> Float[Array, "H N"]:
    """Return the factor `[H, N]` of the importance ratios in the policy loss."""
    advantage = batch.advantage
    if ppo.advantage == "vtrace":
        advantage = variants.vtrace_advantages(batch, ratio, ppo, gamma).advantage_t
    # weighted after normalising: normalising would undo the importance weights
    return batch.sequence_weight[None] * (normalise(advantage, batch.weight) if ppo.norm_adv else advantage)


def _experience(parts: PpoComponents, state: PpoState, hypers: Hypers) -> dict[str, Array]:
    actors, rollout, _ = _rollout(parts, state, _keys(state)[0], hypers.get("start_share"))
    learned = _learned_from(parts, state, rollout)[0]
    batch = _with_reference(parts, state, actors, rollout, learned)[0]._asdict()
    for name in ("carry", "own"):
        batch |= {f"{name}_{i}": leaf for i, leaf in enumerate(jax.tree.leaves(batch.pop(name)))}
    return {name: leaf for name, leaf in batch.items() if leaf is not None}
