"""The loss of PPO (Schulman et al. 2017, arXiv:1707.06347), and what it is made of."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from hmx.agents.optim import Optimiser, make_optimiser
from hmx.agents.sequences import Batch, row_advantages, variant
from hmx.agents.types import Hypers, Params
from hmx.config import derive
from hmx.config.schema import AlgoConfig, Config
from hmx.config.switches import value_weight
from hmx.env.protocol import Env
from hmx.nets import Net, make_net
from hmx.rl import normaliser as obs_normaliser
from hmx.rl import policies
from hmx.rl.advantages import Advantages, normalise
from hmx.rl.divergences import approx_kl, clip_frac
from hmx.rl.losses import clipped_surrogate
from hmx.rl.policies import PolicyHead
from hmx.rl.value_codec import Stats, ValueCodec, make_codec
from hmx.rl.variants import variant_gae
from hmx.rl.weighted import mean
from hmx.types import Array, Key, Max, Mean, Metrics


class Resets(NamedTuple):
    """Where training goes on: `env.reset_on_done` and `env.full_reset_every`."""

    on_done: str = "fresh"
    full_every: int = 0


class Parts(NamedTuple):
    """What the functions of PPO share; static."""

    algo: AlgoConfig
    num_envs: int
    horizon: int
    env: Env
    net: Net
    codec: ValueCodec
    optimiser: Optimiser
    head: PolicyHead = policies.CATEGORICAL
    resets: Resets = Resets()


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
        resets=Resets(cfg.env.reset_on_done, cfg.env.full_reset_every),
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
        return policies.CATEGORICAL
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


def read_obs(algo: AlgoConfig, obs_stats: Any, obs: Array) -> Array:
    """Observations as the network reads them: normalised where `algo.obs_norm` says that this is done there."""
    if algo.obs_norm != "network":
        return obs
    return obs_normaliser.normalise(obs_stats, obs, algo.obs_norm_ddof, algo.obs_norm_clip)


def as_read(algo: AlgoConfig, obs_stats: Any, batch: Batch) -> Batch:
    """Rows with every observation as the network reads it: what the loss is computed from."""
    if algo.obs_norm != "network":
        return batch
    read = partial(jax.tree.map, partial(read_obs, algo, obs_stats))
    return batch._replace(obs=read(batch.obs), obs_next=read(batch.obs_next), obs_last=read(batch.obs_last))


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
        batch: the rows, of `as_read`.
        advantage: `[H, N]`, used as it is; None takes `policy_advantage` of these rows.
        key: for an entropy estimated from samples; None takes its expectation.
    """
    (logits, value_raw), carry = parts.net.unroll(params, batch.carry, batch.obs, batch.reset)
    if parts.algo.advantage_when == "minibatch" and not isinstance(batch.terminated, tuple):
        anew = advantages_anew(parts, params, stats, batch, value_raw, carry)
        batch = batch._replace(advantage=anew.advantage_t, target=anew.target_t)
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


def advantages_anew(
    parts: Parts, params: Params, stats: Stats, batch: Batch, value_raw: Array, carry: Any
) -> Advantages:
    """Advantages and targets of rows with the values of the moment; constants for gradients.

    Args:
        parts: of the algorithm.
        params: of the network.
        stats: of the value codec.
        batch: the rows, with what `algo.advantage_when = minibatch` needs of them.
        value_raw: `[H, N, width]`: what the network says to the rows' observations.
        carry: its memory after the rows.
    """
    algo = parts.algo
    value_t = parts.codec.decode(value_raw, stats)
    if algo.value_forward == "both":
        (_, raw), _ = parts.net.unroll(params, batch.carry, batch.obs_next, jnp.zeros_like(batch.reset))
        value_tp1 = parts.codec.decode(raw, stats)
    else:
        (_, raw), _ = parts.net.apply(params, carry, batch.obs_last, batch.reset_last)
        value_tp1 = jnp.concatenate([value_t[1:], parts.codec.decode(raw, stats)[None]])
    found = variant_gae(batch.reward, value_t, value_tp1, batch.terminated, batch.truncated, *variant(algo))
    return jax.lax.stop_gradient(found)


def ppo_loss(
    parts: Parts, params: Params, stats: Stats, hypers: Hypers, batch: Batch, key: Key | None = None
) -> tuple[Array, Metrics]:
    """The loss of one minibatch, and what there is to say about it.

    Clipped surrogate + `value_weight` x value loss - `ent_coef` x entropy (Schulman et al. 2017, eq. 9), each a mean
    over the steps that are trained on.
    """
    weight, clip_eps = batch.weight, hypers["clip_eps"]
    terms = ppo_terms(parts, params, stats, hypers, batch, key=key)
    log_prob = terms.log_prob
    policy_loss, value_loss, entropy = (mean(term, weight) for term in (terms.policy, terms.value, terms.entropy))
    total = policy_loss + value_weight(parts.algo) * value_loss - hypers["ent_coef"] * entropy
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
    metrics: Metrics = {f"train/{name}": Mean.of(value) for name, value in reports.items()}
    ratio = jnp.exp(jax.lax.stop_gradient(log_prob) - batch.log_prob_old)
    metrics["train/first_ratio_error"] = Max.of(jnp.abs(ratio - 1.0) * weight)
    return total, metrics
