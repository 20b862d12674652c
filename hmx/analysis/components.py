"""The components of PPO's loss for one group, from the same terms that training minimises."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from hmx.agents.ppo import PpoComponents, ppo_terms
from hmx.agents.sequences import Batch
from hmx.agents.types import Hypers, Params
from hmx.analysis.request import KlKind
from hmx.rl.divergences import approx_kl, clip_frac, kl_estimate
from hmx.rl.value_codec import Stats
from hmx.types import Array

COMPONENTS = ("task", "entropy", "kl", "value")


class GroupBatch(NamedTuple):
    """The rows of one group; `batch.advantage` is fixed: normalised once over all groups."""

    batch: Batch
    reference: Array | None  # logits of the reference policy, [H, R, num_actions]; None for the policy itself


class Checks(NamedTuple):
    """Distance of the recomputed policy from the one that played: zero before an update, up to rounding."""

    ratio_error: Array  # largest |ratio - 1|
    approx_kl: Array
    clip_frac: Array


def coefficients(vf_coef: float, hypers: Mapping[str, float], kl_coef: float) -> dict[str, float]:
    """Return the weight of every component in the loss; PPO has no KL term here, so its weight is an argument."""
    return {"task": 1.0, "entropy": float(hypers["ent_coef"]), "kl": kl_coef, "value": vf_coef}


def live(kl: KlKind, has_reference: bool) -> tuple[bool, ...]:
    """Return which components can have a gradient; the KL divergence from itself has none, but some estimates do."""
    return tuple(name != "kl" or has_reference or kl in ("k1", "abs") for name in COMPONENTS)


def ppo_sums(parts: PpoComponents, kl: KlKind) -> Callable[[Params, GroupBatch, Stats, Hypers], tuple[Array, Checks]]:
    """Build `(params, group, value statistics, hypers) -> (losses summed over the group's steps [C], checks)`.

    The losses exclude their coefficients and are minimised, so entropy is negative.

    Args:
        parts: of the algorithm.
        kl: `analytic` is the exact divergence; the others are estimates from the sampled actions, for comparison. The
            expected gradient of k1 is 0 for every reference, that of k2 is that of KL(policy || reference), and that
            of k3 is that of KL(reference || policy).
    """

    def sums(params: Params, group: GroupBatch, stats: Stats, hypers: Hypers) -> tuple[Array, Checks]:
        batch = group.batch
        terms = ppo_terms(parts, params, stats, hypers, batch, batch.advantage)
        reference = jax.lax.stop_gradient(terms.logits) if group.reference is None else group.reference
        if kl == "analytic":
            divergence = parts.head.kl(terms.logits, reference, batch.legal)
        else:
            log_prob_ref = parts.head.log_prob(reference, batch.legal, batch.action)
            divergence = kl_estimate(terms.log_prob, log_prob_ref, kl)
        steps = (terms.policy, -terms.entropy, divergence, terms.value)
        losses = jnp.stack([jnp.where(batch.weight > 0, term, 0.0).sum() for term in steps])
        error = jnp.abs(jnp.expm1(terms.log_prob - batch.log_prob_old)) * batch.weight
        old = batch.log_prob_old
        checks = Checks(
            error.max(),
            approx_kl(terms.log_prob, old, batch.weight),
            clip_frac(terms.log_prob, old, hypers["clip_eps"], batch.weight),
        )
        return losses, jax.lax.stop_gradient(checks)

    return sums
