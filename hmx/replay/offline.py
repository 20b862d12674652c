"""What a buffer would say of transitions that are in none: probabilities of replay, and what followed what."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp

from hmx.replay.exponents import ess_share, fitted
from hmx.replay.priority import Options
from hmx.replay.state import ReplayState, all_densities, all_leaves, with_scale
from hmx.types import Array


class Probabilities(NamedTuple):
    """How likely each transition is to be drawn."""

    probs: Array  # [N]
    ess: Array  # effective sample size as a share of N
    alphas: Array  # [2]: exponents of TD errors and scores in force


def probabilities(td_errors: Array, scores: Array, scored: Array, options: Options) -> Probabilities:
    """What a full buffer of N transitions would draw by.

    Args:
        td_errors: `[N]`, not negative.
        scores: `[N]`, not negative; of no meaning where not scored.
        scored: bool `[N]`.
        options: of replay; exponents are fitted if they ask for an effective sample size.
    """
    size, zero = td_errors.shape[0], jnp.zeros(td_errors.shape, jnp.uint32)
    state = ReplayState(
        items=(),
        env_states=(),
        td_errors=td_errors,
        consequence_scores=scores,
        scored=scored,
        scored_at=zero,
        birth=zero,
        num_added=jnp.uint32(size),
        position=jnp.int32(0),
        size=jnp.int32(size),
        num_scored=scored.sum(dtype=jnp.int32),
        td_max=td_errors.max(),
        score_scale=jnp.float32(1.0),
        neutral=jnp.float32(1.0),
        alphas=jnp.array([options.alpha_td, options.alpha_c], jnp.float32),
        num_nonfinite=jnp.int32(0),
        forest=(),
    )
    state = fitted(with_scale(state, options), options) if options.target_ess > 0.0 else with_scale(state, options)
    densities = all_densities(state, options, all_leaves(state, options))
    return Probabilities(densities / size, ess_share(densities, state.size), state.alphas)


def history(items: Any, birth: Array) -> ReplayState:
    """A buffer that knows what followed what and nothing else, as `Replay.window` asks for.

    Args:
        items: transitions, leaves `[N, ...]`.
        birth: uint32 `[N]`, how many transitions were added before each.
    """
    nothing: Any = ()
    return ReplayState(**{**dict.fromkeys(ReplayState._fields, nothing), "items": items, "birth": birth})
