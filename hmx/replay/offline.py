"""Sampling probabilities and the order of transitions that are not in a replay buffer."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, UInt32

from hmx.config.learning import ReplayConfig
from hmx.replay.priority import exponents
from hmx.replay.state import ReplayState, all_densities, all_leaves, ess_share, fitted, with_scale


def probabilities(
    td_errors: Float[Array, " N"], scores: Float[Array, " N"], scored: Bool[Array, " N"], options: ReplayConfig
) -> tuple[Float[Array, " N"], Float[Array, ""], Float[Array, " 2"]]:
    """Compute the sampling probabilities of a full buffer of N transitions; all inputs are at least 0.

    Returns:
        The probabilities, their effective sample size as a share of N, and the exponents of TD errors and scores.
    """
    size = td_errors.shape[0]
    state = _partial(
        td_errors=td_errors,
        consequence_scores=scores,
        scored=scored,
        birth=jnp.zeros(td_errors.shape, jnp.uint32),
        size=jnp.int32(size),
        num_scored=scored.sum(dtype=jnp.int32),
        alphas=jnp.array(exponents(options), jnp.float32),
    )
    state = fitted(with_scale(state, options), options) if options.target_ess > 0.0 else with_scale(state, options)
    densities = all_densities(state, options, all_leaves(state, options))
    return densities / size, ess_share(densities, state.size), state.alphas


def history(items: Any, birth: UInt32[Array, " N"]) -> ReplayState:
    """Make a state with only the order of its transitions (`[N, ...]`), by birth, for `Replay.window`."""
    return _partial(items=items, birth=birth)


def _partial(**known: Any) -> ReplayState:
    return ReplayState(**{**dict.fromkeys(ReplayState._fields, ()), **known})
