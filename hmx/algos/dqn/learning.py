"""The gradient steps of Q-learning on samples of a replay buffer."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Bool, Float

from hmx.algos.metrics import over_time
from hmx.algos.optim import Optimiser
from hmx.algos.types import Hypers, Params
from hmx.config.schema import Config
from hmx.envs.protocol import Env
from hmx.nets import QNet
from hmx.replay import Experience, Replay, ReplayBatch, ReplayState, n_step
from hmx.rl import distributions
from hmx.rl.losses import huber, squared_error
from hmx.scoring import Continuation, ScoreOptions
from hmx.types import Array, Key, Max, Mean, Metrics

LOSSES = {"huber": huber, "squared": squared_error}


class DqnComponents(NamedTuple):
    """The common data of Q-learning's functions; static."""

    cfg: Config
    env: Env
    net: QNet
    optimiser: Optimiser
    replay: Replay
    score_options: ScoreOptions
    continuation: Continuation  # the policy of scoring rollouts


class Learner(NamedTuple):
    """The data that a gradient step changes."""

    params: Params
    target_params: Params
    opt_state: optax.OptState
    replay: ReplayState  # without the stored transitions, which gradient steps never change
    gradient_steps: Array  # int32: since the run began


def team_value(values: Float[Array, "B A"], alive: Bool[Array, "B A"]) -> Float[Array, " B"]:
    """Return the value of a team `[B]`: the sum over the agents that take part (Sunehag et al. 2018, arXiv:1706.05296).

    Args:
        values: `[B, A]`, of each agent.
        alive: `[B, A]`; the value of an agent that is done is 0.
    """
    return jnp.where(alive, values, 0.0).sum(-1)


def taken_value(parts: DqnComponents, params: Params, items: Experience) -> Float[Array, " B"]:
    """Return the values of the actions taken, `[B]`."""
    values = parts.net.values(params, items.obs_t)
    taken = jnp.take_along_axis(values, items.action_t[..., None], axis=-1)[..., 0]
    return team_value(taken, items.alive_t)


def next_value(parts: DqnComponents, params: Params, target_params: Params, items: Experience) -> Float[Array, " B"]:
    """Return the value of the next state by the target network, `[B]`, over legal actions only.

    The action is the choice of the target network or, for double Q-learning (van Hasselt et al. 2016,
    arXiv:1509.06461), that of the network in training.
    """
    values = parts.net.values(target_params, items.obs_tp1)
    chooser = parts.net.values(params, items.obs_tp1) if parts.cfg.dqn.double else values
    action = distributions.mode(chooser, items.legal_tp1)
    best = jnp.take_along_axis(values, action[..., None], axis=-1)[..., 0]
    return team_value(best, ~items.agent_done_tp1)


def targets(parts: DqnComponents, learner: Learner, replay: ReplayState, batch: ReplayBatch) -> Float[Array, " B"]:
    """Return discounted rewards of up to n steps plus the value after them, `[B]`; truncations are bootstrapped."""
    gamma, steps = parts.cfg.algo.gamma, parts.cfg.dqn.n_step
    if steps == 1:
        last: Experience = batch.items
        ret = last.reward_tp1
        discount = jnp.where(last.terminated_tp1, 0.0, gamma)
    else:
        slots, there = parts.replay.window(replay, batch.index, steps)
        seen: Experience = jax.tree.map(lambda leaf: leaf[slots], replay.items)
        ret, discount, end = n_step(seen.reward_tp1, seen.terminated_tp1, seen.truncated_tp1, there, gamma)
        last = jax.tree.map(lambda leaf: leaf[end, jnp.arange(leaf.shape[1])], seen)
    return ret + discount * next_value(parts, learner.params, learner.target_params, last)


def learn(
    parts: DqnComponents, learner: Learner, stored: ReplayState, hypers: Hypers, key: Key
) -> tuple[Learner, Metrics, tuple[Array, ReplayBatch]]:
    """Take all gradient steps of one update.

    Returns:
        The learner after them, their metrics, and the targets and transitions of each, `[G, B, ...]`.
    """

    def gradient_step(learner: Learner, step: Array) -> tuple[Learner, tuple[Metrics, tuple[Array, ReplayBatch]]]:
        replay = learner.replay._replace(items=stored.items)
        is_beta = hypers.get("is_beta", jnp.float32(0.0))
        batch = parts.replay.sample(replay, jax.random.fold_in(key, step), parts.cfg.dqn.batch_size, is_beta)
        target = jax.lax.stop_gradient(targets(parts, learner, replay, batch))
        compute = jax.value_and_grad(partial(_loss, parts), has_aux=True)
        (loss, value), grads = compute(learner.params, batch, target)
        params, opt_state = parts.optimiser.step(learner.params, learner.opt_state, grads, hypers["learning_rate"])
        done = learner.gradient_steps + 1
        error = target - value
        after = Learner(
            params=params,
            target_params=_update_target(parts, learner.target_params, params, done),
            opt_state=opt_state,
            replay=without_stored(parts.replay.set_priority(replay, batch.index, batch.birth, error)),
            gradient_steps=done,
        )
        metrics: Metrics = {
            "train/total_loss": Mean.of(loss),
            "train/td_error": Mean.of(jnp.abs(error)),
            "train/q_value": Mean.of(value),
            "train/grad_norm": Mean.of(optax.tree.norm(grads)),
            "replay/is_weight_min": Mean.of(batch.weights.min()),
            "replay/is_weight_max": Max.of(batch.weights),
            "replay/drawn_scored": Mean.of(replay.scored[batch.index]),
        }
        return after, (metrics, (target, batch))

    learner, (metrics, drawn) = jax.lax.scan(gradient_step, learner, jnp.arange(parts.cfg.dqn.gradient_steps))
    return learner, over_time(metrics), drawn


def without_stored(replay: ReplayState) -> ReplayState:
    """Return the buffer without its transitions and environment states."""
    return replay._replace(items=None, env_states=None)


def _loss(parts: DqnComponents, params: Params, batch: ReplayBatch, target: Array) -> tuple[Array, Array]:
    """Return the mean weighted loss, and the values `[B]` of the actions taken."""
    losses, value = td_losses(parts, params, batch.items, target)
    return (batch.weights * losses).mean(), value


def td_losses(
    parts: DqnComponents, params: Params, items: Experience, target: Float[Array, " B"]
) -> tuple[Float[Array, " B"], Float[Array, " B"]]:
    """Return the loss of each transition without its importance weight, and the value of its action, both `[B]`."""
    value = taken_value(parts, params, items)
    losses: Any = LOSSES[parts.cfg.dqn.loss](value, target)
    return losses, value


def _update_target(parts: DqnComponents, target: Params, params: Params, gradient_steps: Array) -> Params:
    """Return the target network after a gradient step."""
    due = gradient_steps % parts.cfg.dqn.target_every == 0
    tau = parts.cfg.dqn.target_tau
    # a weighted sum with tau = 1 might not be an exact copy
    new = params if tau == 1.0 else jax.tree.map(lambda old, now: old + tau * (now - old), target, params)
    return jax.tree.map(lambda now, old: jnp.where(due, now, old), new, target)
