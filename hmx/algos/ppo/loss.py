"""The loss of PPO on a minibatch, and its terms."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float

from hmx.algos.ppo import reference as references
from hmx.algos.ppo import variants
from hmx.algos.ppo.aspects import value_weight
from hmx.algos.ppo.components import PpoComponents
from hmx.algos.sequences import Batch
from hmx.algos.types import Hypers, Params
from hmx.config.learning import PpoConfig
from hmx.rl.advantages import normalise, variant_gae
from hmx.rl.divergences import approx_kl, clip_frac
from hmx.rl.losses import clipped_surrogate
from hmx.rl.value_codec import Stats
from hmx.rl.weighted import mean
from hmx.types import Array, Key, Max, Mean, Metrics

FIRST_RATIO_ERROR = "train/first_ratio_error"


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
    metrics[FIRST_RATIO_ERROR] = Max.of(jnp.abs(ratio - 1.0) * weight)
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
    logits, value_raw, batch = outputs(parts, params, stats, batch)
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


def outputs(parts: PpoComponents, params: Params, stats: Stats, batch: Batch) -> tuple[Array, Array, Batch]:
    """Compute the outputs `[H, N, ...]` of policy and value head for a batch.

    Returns:
        Both, and the batch, with advantages and targets from the current values if `ppo.advantage_when = minibatch`.
        These are constants for gradients.
    """
    ppo, decode = parts.cfg.ppo, parts.codec.decode
    (logits, value_raw), carry = parts.net.unroll(params, batch.carry, batch.obs, batch.reset)
    if batch.terminated is None or batch.truncated is None or batch.obs_last is None or batch.reset_last is None:
        return logits, value_raw, batch
    value_t = decode(value_raw, stats)
    if ppo.value_forward == "both" and batch.obs_next is not None:
        (_, later), _ = parts.net.unroll(params, batch.carry, batch.obs_next, jnp.zeros_like(batch.reset))
        value_tp1 = decode(later, stats)
    else:
        (_, later), _ = parts.net.apply(params, carry, batch.obs_last, batch.reset_last)
        value_tp1 = jnp.concatenate([value_t[1:], decode(later, stats)[None]])
    variant = variants.variant_of(ppo, parts.cfg.algo.gamma)
    found = variant_gae(batch.reward, value_t, value_tp1, batch.terminated, batch.truncated, *variant)
    advantage, target = jax.lax.stop_gradient(found)
    return logits, value_raw, batch._replace(advantage=advantage, target=target)


def policy_advantage(ppo: PpoConfig, gamma: float, batch: Batch, ratio: Float[Array, "H N"]) -> Float[Array, "H N"]:
    """Return the factor `[H, N]` of the importance ratios in the policy loss."""
    advantage = batch.advantage
    if ppo.advantage == "vtrace":
        advantage = variants.vtrace_advantages(batch, ratio, ppo, gamma).advantage_t
    # weighted after normalising: normalising would undo the importance weights
    return batch.sequence_weight[None] * (normalise(advantage, batch.weight) if ppo.norm_adv else advantage)
