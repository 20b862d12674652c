"""Random network distillation (RND; Burda et al. 2018, arXiv:1810.12894): `hmx train --algo examples/rnd.py`.

A predictor learns the outputs of a fixed random network. Its error is large for observations that the agent has rarely
seen, and serves as an intrinsic reward. Everything else is PPO, which `[ppo]` configures. Unlike in the paper, the
intrinsic value has a network of its own instead of a second head.
"""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

import hmx
from hmx.toolkit import (
    Mean,
    PpoComponents,
    RunningStats,
    as_sequences,
    gae,
    make_batch,
    make_ppo_algorithm,
    make_ppo_components,
    normaliser,
    ppo_loss,
    weighted_mean,
)


@dataclass(frozen=True)
class Options:
    """Its own options: `--set algo.my.intrinsic_coef=0.5`."""

    intrinsic_coef: float = 1.0  # weight of the advantages of the intrinsic reward
    extrinsic_coef: float = 2.0  # weight of the advantages of the environment's reward
    intrinsic_gamma: float = 0.99  # discount of the intrinsic reward
    value_coef: float = 0.5  # weight of the loss of the intrinsic value
    width: int = 64  # units of each hidden layer, and outputs of the random network


class Own(NamedTuple):
    """What RND keeps from one update to the next."""

    obs: RunningStats  # of the observations that steps reached
    returns: RunningStats  # of the discounted sums of intrinsic rewards
    total: jax.Array  # [E, A]: these sums after the last step


class Mlp(nn.Module):
    """A multilayer perceptron."""

    widths: tuple[int, ...]
    outputs: int

    @nn.compact
    def __call__(self, x):
        """Return `[..., outputs]`."""
        for width in self.widths:
            x = nn.relu(nn.Dense(width)(x))
        return nn.Dense(self.outputs)(x)


def make(cfg: hmx.Config, env: hmx.Env, options: Options) -> hmx.Algorithm:
    """Build PPO with three more networks, a hook for rollouts and a hook for the loss."""
    if cfg.ppo.advantage == "vtrace" or cfg.ppo.advantage_when == "minibatch":
        hint = "set ppo.advantage=gae and ppo.advantage_when=rollout"
        raise hmx.HmxError("cannot use RND: it needs the advantages of whole rollouts", hint)
    parts, spec, width = make_ppo_components(cfg, env), env.spec, options.width
    # The random network is among the parameters, so that it is saved with the predictor; its gradient is 0.
    target, predictor, value = Mlp((width,), width), Mlp((width, width), width), Mlp((width,), 1)

    def features(obs):
        lead = obs.shape[: obs.ndim - len(spec.obs_shape)]
        flat = obs.reshape(-1, *spec.obs_shape)
        decoded = flat if spec.decode is None else spec.decode(flat)
        return decoded.reshape(*lead, -1).astype(jnp.float32)

    blank = features(jnp.zeros((1, *spec.obs_shape), spec.obs_dtype))

    def init(key):
        k_ppo, k_target, k_predictor, k_value = jax.random.split(key, 4)
        named = {"target": (target, k_target), "predictor": (predictor, k_predictor), "value": (value, k_value)}
        return {**parts.net.init(k_ppo), "rnd": {name: net.init(k, blank) for name, (net, k) in named.items()}}

    def own():
        total = jnp.zeros((cfg.env.num_envs, spec.num_agents), jnp.float32)
        return Own(normaliser.init_stats(blank.shape[1:]), normaliser.init_stats(()), total)

    def prediction_error(rnd, obs):
        wanted = jax.lax.stop_gradient(target.apply(rnd["target"], obs))
        return jnp.square(predictor.apply(rnd["predictor"], obs) - wanted).mean(-1)

    def intrinsic_value(rnd, obs):
        return value.apply(rnd["value"], obs)[..., 0]

    def discounted(total, reward):
        total = options.intrinsic_gamma * total + reward
        return total, total

    def rollout_hook(parts: PpoComponents, state, rollout):
        seen, own, rnd = rollout.transitions, state.learner.own, state.params["rnd"]
        # What a step reached: at the end of an episode, its last observation and not the first of the next.
        reached = features(seen.final_obs_tp1)
        obs_stats = normaliser.merge(own.obs, reached, seen.alive_t)
        normalised = partial(normaliser.normalise, obs_stats, clip=5.0)
        reached = normalised(reached)
        obs = normalised(features(jnp.concatenate([seen.obs_t, rollout.obs_last[None]])))
        error = prediction_error(rnd, reached)
        total, totals = jax.lax.scan(discounted, own.total, error)
        return_stats = normaliser.merge(own.returns, totals, seen.alive_t)
        reward = error / normaliser.std(return_stats)
        # Intrinsic returns continue over the ends of episodes (section 2.3 of the paper).
        values, never = intrinsic_value(rnd, obs), jnp.zeros(reward.shape, bool)
        ends = (jnp.zeros_like(reward), never, never)
        intrinsic = gae(reward, values[:-1], values[-1], *ends, options.intrinsic_gamma, cfg.ppo.gae_lambda)

        batch, cut = make_batch(rollout, cfg, parts.horizon), partial(as_sequences, horizon=parts.horizon)
        advantage = options.extrinsic_coef * batch.advantage + options.intrinsic_coef * cut(intrinsic.advantage_t)
        learned = {"obs": obs[:-1], "reached": reached, "value": intrinsic.target_t}
        batch = batch._replace(advantage=advantage, own=jax.tree.map(cut, learned))
        metrics = {"rnd/error": Mean.of(error, seen.alive_t), "rnd/reward": Mean.of(reward, seen.alive_t)}
        return batch, Own(obs_stats, return_stats, total), metrics

    def loss_hook(parts: PpoComponents, params, stats, hypers, batch, key=None):
        total, metrics = ppo_loss(parts, params, stats, hypers, batch, key)
        rnd, learned = params["rnd"], batch.own
        predictor_loss = weighted_mean(prediction_error(rnd, learned["reached"]), batch.weight)
        value_error = jnp.square(intrinsic_value(rnd, learned["obs"]) - learned["value"])
        value_loss = weighted_mean(0.5 * value_error, batch.weight)
        metrics |= {"rnd/predictor_loss": Mean.of(predictor_loss), "rnd/value_loss": Mean.of(value_loss)}
        return total + predictor_loss + options.value_coef * value_loss, metrics

    net = parts.net._replace(init=init)
    return make_ppo_algorithm(parts._replace(net=net, rollout=rollout_hook, loss=loss_hook, own=own, final_obs=True))
