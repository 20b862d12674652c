"""The policy that plays on after the compared action."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from hmx.config.schema import ContinuationKind
from hmx.rl import distributions
from hmx.types import Array, Key

Params = Any


class Continuation(NamedTuple):
    """A policy as scoring uses it. Rows are independent of each other, so each has a key of its own.

    - `act(params, obs [B, A, ...], legal [B, A, num_actions], keys [B]) -> action [B, A]`.
    - `probs(params, obs, legal) -> [B, A, num_actions]`, 0 where illegal; None if the policy has none.
    - `value(params, obs, legal) -> [B]`, of the team; None if the policy has none.
    """

    act: Callable[[Params, Array, Array, Key], Array]
    probs: Callable[[Params, Array, Array], Array] | None = None
    value: Callable[[Params, Array, Array], Array] | None = None


def make_continuation(
    preferences: Callable[[Params, Array], Array],
    kind: ContinuationKind,
    parameter: float,
    value: Callable[[Params, Array, Array], Array] | None = None,
) -> Continuation:
    """Make a policy from `preferences`, action values or logits: `(params, obs [B, A, ...]) -> [B, A, num_actions]`.

    `greedy` takes the legal action with the highest preference, `softmax` samples from preferences divided by
    `parameter`, and `epsilon` is greedy, but each agent acts at random with probability `parameter`.
    """

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

    # A greedy policy gives alternatives probability 0: weighting by it would score nothing.
    return Continuation(act, None if kind == "greedy" else probs, value)
