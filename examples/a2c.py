"""Advantage actor-critic (A2C; Mnih et al. 2016, arXiv:1602.01783): `hmx train --algo examples/a2c.py`."""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp

import hmx
from hmx.toolkit import Policy, collect, gae, make_head, make_net, make_optimiser, start


@dataclass(frozen=True)
class Options:
    """Its own options: `--set algo.my.gae_lambda=1`."""

    gae_lambda: float = 0.95
    vf_coef: float = 0.5
    ent_coef: float = 0.01


def make(cfg: hmx.Config, env: hmx.Env, options: Options) -> hmx.Algorithm:
    """Build the algorithm, which also reads `[algo]` and `[net]`."""
    net = make_net(cfg.net, env.spec)
    head = make_head(cfg, env.spec.action_dim)
    optimiser = make_optimiser(cfg.algo)

    def init(key):
        k_params, k_env, k_run = jax.random.split(key, 3)
        params, num_envs = net.init(k_params), cfg.env.num_envs
        actors = start(env, num_envs, net.initial_carry((num_envs, env.spec.num_agents)), k_env)
        return hmx.TrainState(params, optimiser.init(params), actors, learner=None, key=k_run, update=jnp.int32(0))

    def value_of(params, carry, obs, reset):
        return net.apply(params, carry, obs, jnp.broadcast_to(reset[:, None], obs.shape[:2]))[0].value_raw[..., 0]

    def act(state, carry, obs, legal, reset, key, greedy=False):
        (logits, value), carry = net.apply(state.params, carry, obs, jnp.broadcast_to(reset[:, None], obs.shape[:2]))
        raw = head.mode(logits, legal) if greedy else head.sample(key, logits, legal)
        log_prob, probs = head.log_prob(logits, legal, raw), head.probs(logits, legal)
        return hmx.Decision(head.to_action(raw), log_prob, probs, value[..., 0], raw), carry

    def loss(params, carry, seen, advantage):
        reset = jnp.broadcast_to(seen.reset_t[..., None], seen.value_t.shape)
        (logits, value), _ = net.unroll(params, carry, seen.obs_t, reset)
        policy_loss = -(head.log_prob(logits, seen.legal_t, seen.action_t) * advantage.advantage_t).mean()
        value_loss = 0.5 * ((value[..., 0] - advantage.target_t) ** 2).mean()
        entropy = head.entropy(logits, seen.legal_t, None).mean()
        total = policy_loss + options.vf_coef * value_loss - options.ent_coef * entropy
        return total, {"train/policy_loss": policy_loss, "train/value_loss": value_loss, "train/entropy": entropy}

    def update(state, hypers):
        policy = Policy(partial(act, state), partial(value_of, state.params))
        key = jax.random.fold_in(state.key, state.update)
        actors, rollout, metrics = collect(env, policy, state.actors, key, cfg.algo.num_steps)
        seen, carry = rollout.transitions, jax.tree.map(lambda leaf: leaf[0], rollout.carry)
        values = (seen.value_t, rollout.value_last, seen.value_final_tp1)
        ends = (seen.terminated_tp1, seen.truncated_tp1)
        advantage = gae(seen.reward_tp1, *values, *ends, cfg.algo.gamma, options.gae_lambda)
        grads, losses = jax.grad(loss, has_aux=True)(state.params, carry, seen, advantage)
        params, opt_state = optimiser.step(state.params, state.opt_state, grads, hypers["learning_rate"])
        state = state._replace(params=params, opt_state=opt_state, actors=actors, update=state.update + 1)
        return state, metrics | losses

    return hmx.Algorithm(init, update, lambda update: {"learning_rate": cfg.algo.learning_rate}, act, net.initial_carry)
