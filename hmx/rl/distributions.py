"""The categorical distribution over legal actions.

All functions take `logits [..., num_actions]` and `legal [..., num_actions]` (bool, at least one true per
row). Illegal actions have probability exactly 0 and give no gradient; their logits may have any finite value.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

from hmx.types import Array, Key, Scalar

ILLEGAL = -1e30  # finite, so that a gradient never computes inf - inf; exp of it is exactly 0


def log_probs(logits: Float[Array, "*b n"], legal: Bool[Array, "*b n"]) -> Float[Array, "*b n"]:
    """Return the log-probability of every action `[..., num_actions]`; large, negative and finite where illegal."""
    return jax.nn.log_softmax(jnp.where(legal, logits, ILLEGAL))


def probs(logits: Float[Array, "*b n"], legal: Bool[Array, "*b n"]) -> Float[Array, "*b n"]:
    """Return the probability of every action, exactly 0 where illegal."""
    return jnp.exp(log_probs(logits, legal))


def log_prob(logits: Float[Array, "*b n"], legal: Bool[Array, "*b n"], action: Int[Array, "*b"]) -> Float[Array, "*b"]:
    """Return the log-probability of the chosen legal `action [...]`."""
    chosen = jax.lax.broadcasted_iota(jnp.int32, logits.shape, logits.ndim - 1) == action[..., None]
    # a sum over a mask rather than a gather: its gradient is a select, not a scatter
    return jnp.where(chosen, log_probs(logits, legal), 0.0).sum(-1)


def entropy(logits: Float[Array, "*b n"], legal: Bool[Array, "*b n"]) -> Float[Array, "*b"]:
    """Return the Shannon entropy in nats over the legal actions: `-sum p log p`; exactly 0 where only one is legal."""
    logp = log_probs(logits, legal)
    return -jnp.where(legal, jnp.exp(logp) * logp, 0.0).sum(-1)


def sample(key: Key, logits: Float[Array, "*b n"], legal: Bool[Array, "*b n"]) -> Int[Array, "*b"]:
    """Draw one action per row by the Gumbel-max trick (Maddison et al. 2014, arXiv:1411.0030); int32 `[...]`."""
    noisy = logits + jax.random.gumbel(key, logits.shape, logits.dtype)
    return mode(noisy, legal)


def epsilon_greedy(
    key: Key, values: Float[Array, "*b n"], legal: Bool[Array, "*b n"], epsilon: Scalar
) -> Int[Array, "*b"]:
    """Return the best legal action, or with probability `epsilon` a uniformly random one; int32 `[...]`.

    Rows are independent.
    """
    k_coin, k_action = jax.random.split(key)
    other = sample(k_action, jnp.zeros(legal.shape), legal)
    return jnp.where(jax.random.uniform(k_coin, other.shape) < epsilon, other, mode(values, legal))


def epsilon_probs(values: Float[Array, "*b n"], legal: Bool[Array, "*b n"], epsilon: Scalar) -> Float[Array, "*b n"]:
    """Return the probability of every action under `epsilon_greedy`."""
    best = jax.nn.one_hot(mode(values, legal), legal.shape[-1])
    return epsilon * legal / legal.sum(-1, keepdims=True) + (1.0 - epsilon) * best


def mode(logits: Float[Array, "*b n"], legal: Bool[Array, "*b n"]) -> Int[Array, "*b"]:
    """Return the most probable legal action, with the lowest index in a tie; int32 `[...]`."""
    return jnp.argmax(jnp.where(legal, logits, -jnp.inf), axis=-1).astype(jnp.int32)
