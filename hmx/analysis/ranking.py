"""What groups are ranked by: one figure of every episode, and their mean over a group."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hmx.agents.ppo import Parts, policy_of
from hmx.analysis.buckets import Floats, reward_std
from hmx.analysis.probe import Probe, Prober
from hmx.env.protocol import Env, EnvSpec
from hmx.errors import HmxError
from hmx.rl import distributions
from hmx.scoring import Options, Policy, Positions, make_scorer
from hmx.types import Array, Key

BY = ("reward_std", "return", "length", "level", "td", "consequence")

_ALTERNATIVES, _ROLLOUTS, _HORIZON = 8, 8, 20


class Figure(NamedTuple):
    """A number of every episode, and how much it counts in the mean over a group."""

    value: Floats  # [G, K]
    weight: Floats  # [G, K]


class Ranker(NamedTuple):
    """`figure(probe, state, key)`; None for `reward_std`, which a group has and an episode has not."""

    figure: Callable[..., Figure] | None


def check_rank(by: str, spec: EnvSpec, has_memory: bool) -> None:
    """Refuses a figure that the environment or the policy does not have.

    Raises:
        HmxError: with exit code 2.
    """
    if by == "level" and spec.level is None:
        raise HmxError(f"{spec.id} has no levels to rank by", "--by return")
    if by == "consequence" and spec.num_actions < 2:
        raise HmxError(f"{spec.id} has no other actions to compare with", "--by td")
    if by == "consequence" and has_memory:
        what = "--by consequence plays on from stored states, and a network with memory cannot"
        raise HmxError(what, "--by td")


def make_ranker(parts: Parts, prober: Prober, by: str) -> Ranker:
    """How groups are ranked; compiles nothing yet.

    Raises:
        HmxError: see `check_rank`.
    """
    check_rank(by, parts.env.spec, bool(jax.tree.leaves(parts.net.initial_carry((1,)))))
    figures: dict[str, Callable[..., Figure] | None] = {
        "return": lambda probe, *_: even(probe.returns),
        "length": lambda probe, *_: even(probe.lengths),
        "level": partial(_level, parts),
        "td": partial(_td, parts),
        "consequence": _consequence(parts, prober) if by == "consequence" else None,
    }
    return Ranker(figures.get(by))


def score(figure: Figure | None, returns: Floats, members: np.ndarray[Any, Any]) -> Floats:
    """What each group is ranked by, from some of its members, `[G]`."""
    if figure is None:
        return reward_std(returns[:, members])
    value, weight = figure.value[:, members], figure.weight[:, members]
    return np.asarray((value * weight).sum(1) / np.maximum(weight.sum(1), 1e-9))


def even(value: Floats) -> Figure:
    """A figure in whose mean all episodes count alike."""
    return Figure(value, np.ones_like(value))


def _per_episode(probe: Probe, reduce: Any, values: Floats, start: float) -> Floats:
    """Reduces numbers of rows, `[N]`, to those of their episodes, `[G, K]`."""
    found = np.full(probe.returns.shape, start)
    reduce.at(found, (probe.group, probe.member), values)
    return found


def _td(parts: Parts, probe: Probe, *_: Any) -> Figure:
    """The mean absolute temporal-difference error of the value that the policy acted with."""
    rows = probe.batch
    error = np.asarray(jnp.abs(rows.reward + parts.algo.gamma * rows.bootstrap - rows.value_old), np.float64)
    weight = np.asarray(rows.weight, np.float64)
    total = _per_episode(probe, np.add, np.where(weight > 0, error, 0.0).sum(0), 0.0)
    count = _per_episode(probe, np.add, weight.sum(0), 0.0)
    return Figure(total / np.maximum(count, 1.0), count)


def _level(parts: Parts, probe: Probe, *_: Any) -> Figure:
    """The highest level that an episode sees."""
    assert parts.env.spec.level is not None
    level = np.asarray(parts.env.spec.level(probe.batch.obs), np.float64)
    seen = np.where(np.asarray(probe.batch.weight) > 0, level, -np.inf).max(0)
    return even(_per_episode(probe, np.maximum, seen, -np.inf))


def _consequence(parts: Parts, prober: Prober) -> Callable[..., Figure]:
    """`consequence` of the policy that acted."""

    def act(state: Any, obs: Array, legal: Array, keys: Key) -> Array:
        carry, going_on = parts.net.initial_carry(legal.shape[:2]), jnp.zeros(legal.shape[0], bool)
        decision, _ = policy_of(parts, state).act(carry, obs, legal, going_on, jax.random.key(0))
        # the policy draws for a batch together, and rows that are compared draw for themselves
        return jax.vmap(distributions.sample)(keys, jnp.log(decision.probs), legal)

    num_envs, num_agents = prober.num_groups * prober.per_group, parts.env.spec.num_agents

    def begins(leaf: Array) -> Array:
        """`[H, N, ...]` -> what the first step of every episode has, `[E, A, ...]`."""
        return leaf[0, : num_envs * num_agents].reshape(num_envs, num_agents, *leaf.shape[2:])

    figure = consequence(parts.env, act, prober, parts.algo.gamma)
    return lambda probe, state, key: figure(
        state, key, begins(probe.batch.obs), begins(probe.batch.legal), begins(probe.batch.action)
    )


def consequence(env: Env, act: Callable[..., Array], prober: Prober, gamma: float) -> Callable[..., Figure]:
    """How far the returns after an episode's first action are from those after other actions in its start state.

    Of up to 8 random legal alternatives, each played 8 times for 20 steps with the policy that acted; Wasserstein-1
    distance under common random numbers, as `hmx.scoring` has it.

    Args:
        env: the environment.
        act: as of `hmx.scoring.Policy`.
        prober: whose starts, with the key of the probe, are those of the episodes.
        gamma: discount per step.

    Returns:
        `(state, key of the probe, obs, legal, action) -> Figure`, of the first step of every episode, `[E, A, ...]`.
    """
    alternatives = min(_ALTERNATIVES, env.spec.num_actions - 1)
    options = Options(actions="sampled", num_actions=alternatives, rollouts=_ROLLOUTS, horizon=_HORIZON, gamma=gamma)
    scorer = make_scorer(env, Policy(act), options)

    def figure(state: Any, key: Key, obs: Array, legal: Array, action: Array) -> Figure:
        k_start, k_score = jax.random.split(jax.random.clone(key))[0], jax.random.fold_in(jax.random.clone(key), 2)
        positions = Positions(
            env_state=prober.begin(state, k_start).env_state,
            obs=obs,
            legal=legal,
            taken=action,
            id=jnp.arange(len(obs), dtype=jnp.uint32),
        )
        found = scorer(state, positions, k_score).score
        return even(np.asarray(found, np.float64).reshape(prober.num_groups, prober.per_group))

    return figure
