"""The components of PPO's loss for one group, from the very terms that training minimises."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from hmx.agents.ppo import Parts, ppo_terms
from hmx.agents.sequences import Batch
from hmx.agents.types import Hypers, Params
from hmx.rl.divergences import approx_kl, clip_frac, kl_estimate
from hmx.types import Array

COMPONENTS = ("task", "entropy", "kl", "value")
KL_KINDS = ("analytic", "k1", "k2", "k3", "abs")


class Group(NamedTuple):
    """The rows of one group; `batch.advantage` is frozen: normalised once over all groups, and used as it is."""

    batch: Batch
    reference: Array | None  # logits of the reference policy, [H, R, num_actions]; None for the policy itself


class Checks(NamedTuple):
    """How far the recomputed policy is from the one that played: all but 0 before an update."""

    ratio_error: Array  # largest |ratio - 1|
    approx_kl: Array
    clip_frac: Array


def coefficients(vf_coef: float, hypers: Mapping[str, float], kl_coef: float) -> dict[str, float]:
    """The weight of every component in the loss; PPO here has no KL term, so its weight is the caller's."""
    return {"task": 1.0, "entropy": float(hypers["ent_coef"]), "kl": kl_coef, "value": vf_coef}


def live(kl: str, has_reference: bool) -> tuple[bool, ...]:
    """Which components can have a gradient: the divergence of a policy from itself has none, but some estimates do."""
    return tuple(name != "kl" or has_reference or kl in ("k1", "abs") for name in COMPONENTS)


def ppo_sums(parts: Parts, kl: str) -> Callable[[Params, Group, Any, Hypers], tuple[Array, Checks]]:
    """`(params, group, value stats, hypers) -> (losses summed over the group's steps [C], checks)`.

    The losses are without their coefficients and to be minimised, so entropy is negative.

    Args:
        parts: of the algorithm.
        kl: one of `KL_KINDS`. The exact divergence is the default; estimates from the sampled actions are there to
            be compared with. The expected gradient of k1 is 0 whatever the reference, that of k2 is that of
            KL(policy || reference), and that of k3 is that of KL(reference || policy).
    """

    def sums(params: Params, group: Group, stats: Any, hypers: Hypers) -> tuple[Array, Checks]:
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
