"""A score from action values alone: what rollouts have to beat to be worth their cost."""

from __future__ import annotations

import jax.numpy as jnp

from hmx.env.protocol import EnvSpec
from hmx.scoring.candidates import candidates, joint_probs
from hmx.scoring.options import Options, check
from hmx.scoring.score import aggregated, own_keys
from hmx.types import Array, Key


def q_gap(
    spec: EnvSpec, values: Array, taken: Array, legal: Array, ids: Array, key: Key, options: Options,
    probs: Array | None = None,
) -> Array:  # fmt: skip
    """How far the value of the action taken is from those of its alternatives, `[S]`.

    The same alternatives, for the same key, and the same aggregate as `score`; the value of a joint action is the sum
    over agents (as in value decomposition, Sunehag et al. 2018, arXiv:1706.05296).

    Args:
        spec: of the environment.
        values: `[S, A, num_actions]` action values.
        taken: int32 `[S, A]`.
        legal: bool `[S, A, num_actions]`.
        ids: uint32 `[S]`, which positions these are.
        key: spent here; matters to `sampled` actions only.
        options: which alternatives, and their aggregate; nothing else of them matters.
        probs: the policy's probabilities `[S, A, num_actions]`, where the options need them.

    Raises:
        HmxError: the options cannot work.
    """
    check(options, spec, probs is not None, True)
    tried = candidates(options, spec, taken, legal, own_keys(key, ids)[0], probs)
    joint = jnp.take_along_axis(values, tried.action.transpose(0, 2, 1), axis=2).sum(1)
    gaps = jnp.where(tried.valid, jnp.abs(joint - joint[:, :1]), 0.0)
    weights = tried.valid.at[:, 0].set(False).astype(jnp.float32)
    if options.aggregate == "policy":
        assert probs is not None
        weights = weights * joint_probs(probs, tried.action)
    return aggregated(gaps, weights, options.aggregate)
