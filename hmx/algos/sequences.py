"""From a rollout to training sequences, and from sequences to minibatches.

A sequence is `H` consecutive steps of one agent, with `H = ppo.bptt_horizon`. `H` is 1 for a feed-forward network whose
samples are shuffled one by one.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float, Int, Shaped

from hmx.algos.collector import Rollout
from hmx.algos.sharding import shard
from hmx.algos.types import Carry
from hmx.config.learning import PpoConfig
from hmx.rl.advantages import Advantages, bootstraps
from hmx.rl.priorities import draw_sequences, importance_weights, inclusion_probs, sequence_magnitude, sequence_probs
from hmx.types import Array, Key, Max, Mean, Metrics, Sum


class Batch(NamedTuple):
    """`N` sequences of `H` steps: leaves are `[H, N, ...]`, those in `PER_SEQUENCE` are `[N, ...]`."""

    obs: Array
    legal: Array
    reset: Array
    action: Array
    log_prob_old: Array
    value_old: Array
    advantage: Array
    target: Array
    weight: Array  # float32: 1, or 0 for a step that is not trained on
    reward: Array
    bootstrap: Array  # value of the state after the step: 0 after a termination
    done: Array
    carry: Carry  # [N, ...]: the RNN carry before the sequence
    advantage_next: Array  # [N]: advantage of the step after the sequence
    sequence_weight: Array  # [N]: importance weight
    probs: Array | None = None  # [H, N, num_actions]: of the search that chose the actions, if any
    reference: Array | None = None  # [H, N, width]: outputs of the head of the reference policy, if there is one
    own: Any = None  # [H, N, ...]: arrays that a rollout hook adds for its loss (`hmx.algos.ppo.update`)
    # only where advantages are recomputed in every minibatch:
    terminated: Array | None = None
    truncated: Array | None = None
    obs_next: Array | None = None  # the observation after each step
    obs_last: Array | None = None  # [N, ...]: the observation after the sequence
    reset_last: Array | None = None  # [N]: that one is the first of an episode


PER_SEQUENCE = ("carry", "advantage_next", "sequence_weight", "obs_last", "reset_last")


def as_sequences(leaf: Shaped[Array, "T E A ..."], horizon: int) -> Shaped[Array, "H N ..."]:
    """Cut an array `[T, E, A, ...]` into sequences `[H, T / H x E x A, ...]`."""
    parts = leaf.reshape(leaf.shape[0] // horizon, horizon, *leaf.shape[1:])
    return jnp.moveaxis(parts, 1, 0).reshape(horizon, math.prod(leaf.shape[:3]) // horizon, *leaf.shape[3:])


def make_sequences(rollout: Rollout, advantages: Advantages, horizon: int) -> Batch:
    """Cut a rollout `[T, E, A]` into its `T / horizon x E x A` sequences.

    Args:
        rollout: with the RNN carry at the start of every sequence, if there is one.
        advantages: advantages of the rollout, `[T, E, A]`.
        horizon: steps of a sequence; divides T.
    """
    seen = rollout.transitions
    shape = seen.reward_tp1.shape
    count = math.prod(shape) // horizon

    def cut(leaf: Array) -> Array:
        return as_sequences(leaf, horizon)

    bootstrap = bootstraps(
        seen.value_t, rollout.value_last, seen.value_final_tp1, seen.terminated_tp1, seen.truncated_tp1
    )
    first = advantages.advantage_t[::horizon]  # of each sequence
    following = jnp.concatenate([first[1:], jnp.zeros_like(first[:1])])
    return Batch(
        obs=cut(seen.obs_t),
        legal=cut(seen.legal_t),
        reset=cut(jnp.broadcast_to(seen.reset_t[..., None], shape)),
        action=cut(seen.action_t),
        log_prob_old=cut(seen.log_prob_t),
        value_old=cut(seen.value_t),
        advantage=cut(advantages.advantage_t),
        target=cut(advantages.target_t),
        weight=cut(seen.alive_t).astype(jnp.float32),
        reward=cut(seen.reward_tp1),
        bootstrap=cut(bootstrap),
        done=cut(seen.terminated_tp1 | seen.truncated_tp1),
        carry=jax.tree.map(lambda leaf: leaf.reshape(count, *leaf.shape[3:]), rollout.carry),
        advantage_next=following.reshape(count),
        sequence_weight=jnp.ones(count, jnp.float32),
        probs=None if seen.probs_t is None else cut(seen.probs_t),
    )


class MinibatchPlan(NamedTuple):
    """The sequences of each gradient step and their importance weights, `[gradient steps, sequences per minibatch]`."""

    numbers: Array
    sequence_weight: Array


def plan_minibatches(
    batch: Batch, ppo: PpoConfig, beta: Float[Array, ""] | None, key: Key
) -> tuple[MinibatchPlan, Metrics]:
    """Assign sequences to the minibatches of an update.

    Without priorities every epoch uses each sequence once, in a new order. With `ppo.prio_alpha` each minibatch is
    drawn without replacement with probabilities that grow with the advantages (Schaul et al. 2016, arXiv:1511.05952,
    applied to the sequences of a rollout), and importance weights with exponent `beta` correct for it.
    """
    count = batch.sequence_weight.shape[0]
    steps = ppo.update_epochs * ppo.num_minibatches
    if not ppo.prio_alpha or beta is None:
        k_epochs = jax.random.split(key, ppo.update_epochs)
        order = jax.vmap(lambda k_epoch: jax.random.permutation(k_epoch, count))(k_epochs)
        index = order.reshape(steps, -1)
        return MinibatchPlan(index, jnp.ones(index.shape, jnp.float32)), {}
    magnitude = sequence_magnitude(batch.advantage.T, batch.weight.T)
    probs, num_nonfinite = sequence_probs(magnitude, ppo.prio_alpha)
    per_step = count // ppo.num_minibatches

    def draw(k_step: Key) -> tuple[Array, Array]:
        drawn = draw_sequences(k_step, probs, per_step)
        corrected = probs
        if ppo.prio_probs == "inclusion":
            corrected = inclusion_probs(jax.random.clone(k_step), probs, per_step) / per_step
        return drawn, importance_weights(corrected[drawn], count, beta, ppo.prio_weights, ppo.prio_weight_clip)

    index, weight = jax.vmap(draw)(jax.random.split(key, steps))
    used = jnp.zeros(count, jnp.float32).at[index.reshape(-1)].set(1.0)
    return MinibatchPlan(index, weight), {
        "train/sequence_coverage": Mean.of(used),
        "train/nonfinite_sequences": Sum.of(num_nonfinite),
        "train/max_sequence_weight": Max.of(weight),
    }


def take_sequences(batch: Batch, index: Int[Array, " m"], sequence_weight: Float[Array, " m"]) -> Batch:
    """Return the sequences of one minibatch."""
    taken = {
        name: jax.tree.map(lambda leaf, axis=int(name not in PER_SEQUENCE): leaf.take(index, axis=axis), leaves)
        for name, leaves in batch._asdict().items()
    }
    return Batch(**{**taken, "sequence_weight": sequence_weight})


def shard_sequences(batch: Batch) -> Batch:
    """Split sequences over the devices, regardless of their environments."""
    return Batch(**{name: shard(leaves, int(name not in PER_SEQUENCE)) for name, leaves in batch._asdict().items()})
