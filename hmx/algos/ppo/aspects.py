"""What a configuration of PPO means; no JAX."""

from __future__ import annotations

from hmx.config.schema import PpoConfig


def value_weight(ppo: PpoConfig) -> float:
    """Return the weight of the value loss, which is half the mean squared error (or the cross-entropy of two_hot)."""
    return ppo.vf_coef if ppo.vf_half else 2.0 * ppo.vf_coef
