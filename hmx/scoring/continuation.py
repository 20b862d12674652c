"""How play goes on after the action that is tried."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from hmx.errors import HmxError
from hmx.rl import distributions
from hmx.scoring.options import CONTINUATIONS
from hmx.types import Array, Key

Params = Any


class Policy(NamedTuple):
    """What a scorer asks of a policy. Rows are independent of each other, so each has a key of its own.

    - `act(params, obs [B, A, ...], legal [B, A, num_actions], keys [B]) -> action [B, A]`.
    - `probs(params, obs, legal) -> [B, A, num_actions]`, 0 where illegal; None for one that has none.
    - `value(params, obs, legal) -> [B]`, of the team; None without.
    """

    act: Callable[[Params, Array, Array, Key], Array]
    probs: Callable[[Params, Array, Array], Array] | None = None
    value: Callable[[Params, Array, Array], Array] | None = None


def make_policy(
    preferences: Callable[[Params, Array], Array],
    kind: str,
    parameter: float = 1.0,
    value: Callable[[Params, Array, Array], Array] | None = None,
) -> Policy:
    """A policy from action values or logits.

    Args:
        preferences: `(params, obs [B, A, ...]) -> [B, A, num_actions]`.
        kind: `greedy`, the highest legal one; `softmax`, sampled from them divided by `parameter`; `epsilon`, greedy,
            but each agent chooses at random with probability `parameter`.
        parameter: temperature or probability.
        value: of observations, for bootstrapping.

    Raises:
        HmxError: any other kind, or a parameter out of its range.
    """
    if kind not in CONTINUATIONS:
        raise HmxError(f"unknown continuation: {kind}", f"known: {', '.join(CONTINUATIONS)}")
    if kind == "softmax" and not parameter > 0.0:
        raise HmxError(f"a softmax of temperature {parameter} cannot be sampled", "take one above 0, or greedy")
    if kind == "epsilon" and not 0.0 <= parameter <= 1.0:
        raise HmxError(f"epsilon = {parameter} is no probability", "take one from 0 to 1")

    def probs(params: Params, obs: Array, legal: Array) -> Array:
        values = preferences(params, obs)
        if kind == "softmax":
            return distributions.probs(values / parameter, legal)
        return distributions.epsilon_probs(values, legal, parameter)

    def act(params: Params, obs: Array, legal: Array, keys: Key) -> Array:
        values = preferences(params, obs)
        if kind == "softmax":
            return jax.vmap(distributions.sample)(keys, values / parameter, legal)
        if kind == "greedy":
            return distributions.mode(values, legal)
        return jax.vmap(distributions.epsilon_greedy, in_axes=(0, 0, 0, None))(keys, values, legal, parameter)

    # a greedy policy gives alternatives no weight at all: to weigh by it would be to score nothing
    return Policy(act, None if kind == "greedy" else probs, value)
