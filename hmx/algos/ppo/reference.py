"""The reference policy that `ppo.ref` keeps the policy close to, by a penalty of KL(policy || reference) in the loss.

The outputs of its head are computed once per rollout, after the last step and before the gradient steps, with its own
RNN carry and its own statistics of observations, and learned from like the other arrays of the rollout. So a recurrent
reference reads every observation once and in order, as it would while playing, whatever acts: the policy in a compiled
rollout, in front of simulators, or a search. One forward pass per step serves all epochs.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float

from hmx.algos.ppo.variants import network_obs
from hmx.algos.sequences import Batch
from hmx.algos.types import Carry, Hypers, Params
from hmx.config.learning import PpoConfig
from hmx.nets import Net
from hmx.rl.normaliser import RunningStats
from hmx.rl.policies import PolicyHead
from hmx.rl.weighted import mean
from hmx.types import Array, Mean, Metrics, Scalar, Transition


class ReferencePolicy(NamedTuple):
    """A policy that does not learn; its network has the form of that of the run."""

    params: Params
    obs_stats: RunningStats | None  # None if observations are not normalised


def blank(params: Params, obs_stats: RunningStats | None) -> ReferencePolicy:
    """Return a reference of zeros, which `hmx.runs.reference` fills from a file."""
    zeros: ReferencePolicy = jax.tree.map(jnp.zeros_like, ReferencePolicy(params, obs_stats))
    return zeros


def outputs(
    ppo: PpoConfig, net: Net, reference: ReferencePolicy, carry: Carry, seen: Transition
) -> tuple[Float[Array, "T E A width"], Carry]:
    """Compute the outputs of the policy head for the observations of a rollout, as they were when it played.

    Args:
        ppo: how observations are normalised.
        net: net of the run.
        reference: the policy.
        carry: its RNN carry before the rollout.
        seen: `T` steps of `E` environments.

    Returns:
        The outputs, and the RNN carry after the rollout.
    """

    def step(carry: Carry, now: tuple[Array, Array]) -> tuple[Carry, Array]:
        obs, reset = now
        read = network_obs(ppo, reference.obs_stats, obs)
        (output, _), carry = net.apply(reference.params, carry, read, jnp.broadcast_to(reset[:, None], obs.shape[:2]))
        return carry, output

    carry, found = jax.lax.scan(step, carry, (seen.obs_t, seen.reset_t))
    return found, carry


def reference_penalty(
    head: PolicyHead, output: Float[Array, "H N width"], hypers: Hypers, batch: Batch
) -> tuple[Scalar, Metrics]:
    """Return the penalty of a minibatch, `ref_kl_coef` x the mean of KL(policy || reference), and its metric.

    It is exact in every step: a sum over the actions, or the closed form of normal distributions. Without a reference
    it is 0 and there is no metric; where the coefficient is 0, the divergence is only measured.

    Args:
        head: the distribution over actions.
        output: output of the policy head.
        hypers: scheduled hyperparameters.
        batch: with the outputs of the reference, if there is one.
    """
    if batch.reference is None:
        return 0.0, {}
    divergence = mean(head.kl(output, batch.reference, batch.legal), batch.weight)
    metrics: Metrics = {"train/ref_kl": Mean.of(jax.lax.stop_gradient(divergence))}
    return (hypers["ref_kl_coef"] * divergence if "ref_kl_coef" in hypers else 0.0), metrics
