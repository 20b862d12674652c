"""The loss of PPO (Schulman et al. 2017, arXiv:1707.06347), and what it is made of."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from hmx.agents.optim import Optimiser, make_optimiser
from hmx.agents.rows import Batch, row_advantages
from hmx.agents.types import Hypers, Params
from hmx.config import derive
from hmx.config.schema import AlgoConfig, Config
from hmx.env.protocol import Env
from hmx.nets import Net, make_net
from hmx.rl import policies
from hmx.rl.advantages import normalise
from hmx.rl.divergences import approx_kl, clip_frac
from hmx.rl.losses import clipped_surrogate
from hmx.rl.policies import PolicyHead
from hmx.rl.value_codec import Stats, ValueCodec, make_codec
from hmx.rl.weighted import mean
from hmx.types import Array, Key, Max, Mean, Metrics


class Parts(NamedTuple):
    """What the functions of PPO share; static."""

    algo: AlgoConfig
    num_envs: int
    horizon: int
    env: Env
    net: Net
    head: PolicyHead
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
        head=make_head(cfg, env.spec.action_dim),
        codec=codec,
        optimiser=make_optimiser(cfg.algo),
    )


def make_head(cfg: Config, action_dim: int) -> PolicyHead:
    """The distribution over actions: masked categorical, or tanh-normal where actions are continuous."""
    if not action_dim:
        return policies.categorical()
    return policies.tanh_gaussian(action_dim, cfg.net.std, cfg.net.std_min, cfg.algo.entropy)


class Terms(NamedTuple):
    """The parts of the loss at every step of some rows, `[H, N]`, unweighted: each loss is a mean over the steps."""

    policy: Array
    value: Array
    entropy: Array
    log_prob: Array  # of the actions taken
    logits: Array  # [H, N, ...]: what the policy head says


def policy_advantage(algo: AlgoConfig, batch: Batch, ratio: Array) -> Array:
    """What the policy loss multiplies its ratios `[H, N]` by."""
    advantage = row_advantages(batch, ratio, algo).advantage_t if algo.advantage == "vtrace" else batch.advantage
    # weighted after normalising: the importance weights are not to be normalised away
    return batch.row_weight[None] * (normalise(advantage, batch.weight) if algo.norm_adv else advantage)


def ppo_terms(
    parts: Parts,
    params: Params,
    stats: Stats,
    hypers: Hypers,
    batch: Batch,
    advantage: Array | None = None,
    key: Key | None = None,
) -> Terms:
    """The terms of the loss of some rows.

    Args:
        parts: of the algorithm.
        params: of the network.
        stats: of the value codec.
        hypers: scheduled values.
        batch: the rows.
        advantage: `[H, N]`, used as it is; None takes `policy_advantage` of these rows.
        key: for an entropy estimated from samples; None takes its expectation.
    """
    (logits, value_raw), _ = parts.net.unroll(params, batch.carry, batch.obs, batch.reset)
    log_prob = parts.head.log_prob(logits, batch.legal, batch.action)
    if advantage is None:
        ratio = jnp.exp(jax.lax.stop_gradient(log_prob) - batch.log_prob_old)
        advantage = policy_advantage(parts.algo, batch, ratio)
    clip_vf_eps = hypers.get("clip_vf_eps", 0.0)
    return Terms(
        policy=clipped_surrogate(log_prob, batch.log_prob_old, advantage, hypers["clip_eps"]),
        value=parts.codec.loss(value_raw, batch.target, batch.value_old, clip_vf_eps, stats),
        entropy=parts.head.entropy(logits, batch.legal, key),
        log_prob=log_prob,
        logits=logits,
    )


def ppo_loss(
    parts: Parts, params: Params, stats: Stats, hypers: Hypers, batch: Batch, key: Key | None = None
) -> tuple[Array, Metrics]:
    """The loss of one minibatch, and what there is to say about it.

    Clipped surrogate + `vf_coef` x value loss - `ent_coef` x entropy (Schulman et al. 2017, eq. 9), each a mean over
    the steps that are trained on.
    """
    weight, clip_eps = batch.weight, hypers["clip_eps"]
    terms = ppo_terms(parts, params, stats, hypers, batch, key=key)
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
    if parts.env.spec.action_dim:
        reports["std"] = mean(parts.head.std(terms.logits).mean(-1), weight)
    metrics: Metrics = {f"train/{name}": Mean.of(value) for name, value in reports.items()}
    ratio = jnp.exp(jax.lax.stop_gradient(log_prob) - batch.log_prob_old)
    metrics["train/first_ratio_error"] = Max.of(jnp.abs(ratio - 1.0) * weight)
    return total, metrics
