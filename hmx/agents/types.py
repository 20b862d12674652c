"""What an algorithm is: a record of pure functions over a state that a checkpoint can hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from hmx.types import Array, Key, Metrics

Params = Any
TrainState = Any  # a pytree of arrays and typed keys, with at least `params`, `update` (int32) and `env_steps`


class Decision(NamedTuple):
    """What a policy says about one batch of observations."""

    action: Array  # [E, A] int32
    log_prob: Array  # [E, A]
    probs: Array  # [E, A, num_actions], 0 where illegal
    value: Array  # [E, A], in reward units


class Algorithm(NamedTuple):
    """`init(key)`, one `update(state)` (a rollout and its gradient steps), and the policy.

    `act(state, obs, legal, key, greedy)` reads only what the policy needs of the state; `greedy` is static.
    """

    init: Callable[[Key], TrainState]
    update: Callable[[TrainState], tuple[TrainState, Metrics]]
    act: Callable[..., Decision]
