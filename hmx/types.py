"""Records that travel between layers: steps of environments, transitions of rollouts, and metrics.

Axes are `[T, E, A, ...]`: time, environment, agent.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array
Scalar = float | np.floating[Any] | Array
Key = jax.Array


class Timestep(NamedTuple):
    """The result of a step (or a reset) of `E` environments.

    `obs` and `legal` belong to the state the next action is taken in: after an episode's end they are
    the first of the next episode. `final_obs` is the true last observation of the step's own episode,
    and equals `obs` where the episode continues. `final_legal` are the legal actions in the state of `final_obs`
    where the episode was truncated, and equals `legal` everywhere else.
    """

    obs: Array  # [E, A, *obs_shape]
    legal: Array  # [E, A, num_actions] bool, at least one true; [E, A, 0] for continuous actions
    final_obs: Array  # [E, A, *obs_shape]
    final_legal: Array  # [E, A, num_actions] bool, at least one true
    reward: Array  # [E, A] float32
    terminated: Array  # [E] bool: the episode ended by its own rules
    truncated: Array  # [E] bool: ended by the step limit, never together with terminated
    agent_done: Array  # [E, A] bool: the agent's part ended by the rules; all true exactly where terminated
    terms: dict[str, Array]  # reward term -> [E] float32; they sum to the reward summed over agents
    info: dict[str, Array]  # other values that the environment reports, [E, ...]


class Transition(NamedTuple):
    """One step as the learner stores it: everything is of time t, except for the results of the action."""

    obs_t: Array
    legal_t: Array
    reset_t: Array  # [...] bool: obs_t is the first of an episode
    alive_t: Array  # [..., A] bool: the agent takes part in the episode
    action_t: Array  # [..., A] int32, or [..., A, D] float32: continuous actions before the squash
    log_prob_t: Array  # [..., A] float32
    value_t: Array  # [..., A] float32, in reward units
    reward_tp1: Array  # [..., A] float32
    terminated_tp1: Array  # [..., A] bool: the agent's part of the episode ended by the rules
    truncated_tp1: Array  # [..., A] bool: the step limit truncated it
    value_final_tp1: Array  # [..., A] float32: value of `final_obs` where truncated (or requested), else 0
    final_obs_tp1: Array | None = None  # [..., A, *obs_shape]: `final_obs`, where the learner asked for it
    probs_t: Array | None = None  # [..., A, num_actions]: of the policy that chose the action, if that was a search


class Mean(NamedTuple):
    """A mean that can be added up; a mean without data never becomes 0."""

    total: Array
    count: Array  # type: ignore[assignment]

    @classmethod
    def of(cls, values: Array, where: Array | None = None) -> Mean:
        """Return the mean over all elements, or those where `where` holds; it may lack trailing axes of `values`."""
        values = jnp.asarray(values, jnp.float32)
        if where is None:
            return cls(values.sum(), jnp.float32(values.size))
        where = _as_wide(where, values)
        return cls(jnp.where(where, values, 0.0).sum(), jnp.asarray(where, jnp.float32).sum())

    def __add__(self, other: Mean) -> Mean:  # type: ignore[override]
        return Mean(self.total + other.total, self.count + other.count)


class Max(NamedTuple):
    """A maximum that can be merged; `count` 0 means no data."""

    value: Array
    count: Array  # type: ignore[assignment]

    @classmethod
    def of(cls, values: Array, where: Array | None = None) -> Max:
        """Return the maximum over all elements, or those where `where` holds."""
        values = jnp.asarray(values, jnp.float32)
        if where is None:
            return cls(values.max(), jnp.float32(values.size))
        where = _as_wide(where, values)
        return cls(jnp.where(where, values, -jnp.inf).max(), where.astype(jnp.float32).sum())


class Sum(NamedTuple):
    """A count or a total over the window."""

    total: Array

    @classmethod
    def of(cls, values: Array, where: Array | None = None) -> Sum:
        """Return the sum over all elements, or those where `where` holds."""
        values = jnp.asarray(values, jnp.float32)
        return cls((values if where is None else jnp.where(_as_wide(where, values), values, 0.0)).sum())


def _as_wide(where: Array, values: Array) -> Array:
    missing = tuple(range(jnp.ndim(where), values.ndim))
    return jnp.broadcast_to(jnp.expand_dims(where, missing) if missing else where, values.shape)


Metric = Mean | Max | Sum
Metrics = dict[str, Metric]
