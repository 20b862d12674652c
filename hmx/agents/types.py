"""What an algorithm is: a record of pure functions over a state that a checkpoint can hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from hmx.types import Array, Key, Metrics

Params = Any
TrainState = Any  # a pytree of arrays and typed keys, with at least `params` and `update` (int32)
Hypers = dict[str, Array]  # scheduled hyperparameter -> float32 scalar, for one update


class Decision(NamedTuple):
    """What a policy says about one batch of observations."""

    action: Array  # [E, A] int32, or [E, A, D] float32 in [-1, 1]: what the environment takes
    log_prob: Array  # [E, A]
    probs: Array  # [E, A, num_actions], 0 where illegal; [E, A, 0] for continuous actions
    value: Array  # [E, A], in reward units as the learner scales them
    raw: Array | None = None  # what is stored and what ratios are taken of, where that is not the action itself


class Algorithm(NamedTuple):
    """`init(key)`, one `update(state, hypers)` (a rollout and its gradient steps), and the policy.

    - `hypers(update)` runs on the host: the value of every scheduled hyperparameter for the update of that number
      (from 0). It depends on nothing but the number, so a resumed run needs no schedule state.
    - `act(state, carry, obs, legal, reset, key, greedy)` reads only what the policy needs of the state; `carry` is its
      memory `[E, A, ...]`, emptied where `reset [E]` holds before it is used; `greedy` is static. It returns the
      decision and the new memory. `initial_carry((E, A))` is an empty one.
    - `forget(before, after)` is `after` without what was learned since `before`: the environments have moved on, the
      parameters have not.
    - `partitions(state)` says for every leaf how it is split over several devices; see `hmx.agents.sharding`.
    - `experience(state, hypers)` is what `update` would learn from, as arrays by name: for diagnosis.
    - `choose(sound, after, before)` is `after` where the flag holds, else `before`: for states too large to be held
      twice, which know how to take an update back. None where the one or the other can simply be selected.
    - A hyperparameter whose name begins with an underscore is a switch: it enters the update, but no record.
    """

    init: Callable[[Key], TrainState]
    update: Callable[[TrainState, Hypers], tuple[TrainState, Metrics]]
    hypers: Callable[[int], dict[str, float]]
    act: Callable[..., tuple[Decision, Any]]
    initial_carry: Callable[[tuple[int, int]], Any]
    forget: Callable[[TrainState, TrainState], TrainState]
    partitions: Callable[[TrainState], Any]
    experience: Callable[[TrainState, Hypers], dict[str, Array]]
    choose: Callable[[Array, TrainState, TrainState], TrainState] | None = None
