"""A score from action values alone: the baseline that rollouts must beat."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, UInt

from hmx.env.protocol import EnvSpec
from hmx.scoring.candidates import candidates, joint_probs
from hmx.scoring.options import ScoreOptions, check_options
from hmx.scoring.score import aggregated, own_keys


def q_gap(
    spec: EnvSpec,
    values: Float[Array, "S A num_actions"],
    taken: Int[Array, "S A"],
    legal: Bool[Array, "S A num_actions"],
    ids: UInt[Array, " S"],
    key: Key[Array, ""],
    options: ScoreOptions,
    probs: Float[Array, "S A num_actions"] | None = None,
) -> Float[Array, " S"]:
    """Compute how far the value of the action taken is from the values of its alternatives.

    Alternatives and aggregate are those of `score` with the same key. The value of a joint action is the sum over
    agents, as in value decomposition (Sunehag et al. 2018, arXiv:1706.05296).
    """
    check_options(options, spec, probs is not None, True)
    tried = candidates(options, spec, taken, legal, own_keys(key, ids)[0], probs)
    joint = jnp.take_along_axis(values, tried.action.transpose(0, 2, 1), axis=2).sum(1)
    gaps = jnp.where(tried.valid, jnp.abs(joint - joint[:, :1]), 0.0)
    weights = tried.valid.at[:, 0].set(False).astype(jnp.float32)
    if options.aggregate == "policy":
        assert probs is not None
        weights = weights * joint_probs(probs, tried.action)
    return aggregated(gaps, weights, options.aggregate)
