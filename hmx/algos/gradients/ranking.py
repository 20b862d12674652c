"""The values that rank groups: a value of every episode, averaged over the group."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from hmx.algos.gradients.buckets import Floats, Ints, reward_std
from hmx.algos.gradients.probe import Probe, ProbeEpisodes, Prober
from hmx.algos.gradients.request import RankBy
from hmx.algos.ppo.update import PpoComponents, policy_of
from hmx.algos.types import TrainState
from hmx.envs.protocol import Env, EnvSpec
from hmx.errors import HmxError
from hmx.rl import distributions
from hmx.scoring import Continuation, Positions, ScoreOptions, make_scorer
from hmx.types import Array, Key

_ALTERNATIVES, _ROLLOUTS, _HORIZON = 8, 8, 20


class Figure(NamedTuple):
    """A value of every episode, and its weight in the mean over a group."""

    value: Floats  # [G, K]
    weight: Floats  # [G, K]


Ranker = Callable[[Probe, TrainState, Key], Figure | None]
Consequences = Callable[[Any, Key, Array, Array, Array], Figure]


def check_rank(by: RankBy, spec: EnvSpec, recurrent: bool) -> None:
    """Refuse values that the environment or the policy does not have (exit code 2)."""
    if by == "level" and spec.level is None:
        raise HmxError(f"cannot rank by level: {spec.id} has no levels", "--by return")
    if by == "consequence" and spec.num_actions < 2:
        raise HmxError(f"cannot rank by consequence: {spec.id} has no other actions to compare with", "--by td")
    if by == "consequence" and recurrent:
        what = "cannot rank by consequence: it plays from stored states, and the network is recurrent"
        raise HmxError(what, "--by td")


def make_ranker(parts: PpoComponents, prober: Prober, by: RankBy) -> Ranker:
    """Build the function that ranks the groups of a PPO probe; it returns None for `reward_std`."""
    check_rank(by, parts.env.spec, bool(jax.tree.leaves(parts.net.initial_carry((1,)))))
    if by == "consequence":
        return _consequence(parts, prober)
    values: dict[RankBy, Callable[[Probe], Figure]] = {"level": partial(_level, parts), "td": partial(_td, parts)}
    return lambda probe, *_: values[by](probe) if by in values else of_episodes(by, probe.episodes)


def of_episodes(by: RankBy, episodes: ProbeEpisodes) -> Figure | None:
    """Return return or length of the episodes; None for values of another kind."""
    return even(episodes.returns if by == "return" else episodes.lengths) if by in ("return", "length") else None


def score(figure: Figure | None, returns: Float[Floats, "G K"], members: Int[Ints, " k"]) -> Float[Floats, " G"]:
    """Return the values that rank the groups, over some of their members, `[G]`; None means `reward_std`."""
    if figure is None:
        return reward_std(returns[:, members])
    value, weight = figure.value[:, members], figure.weight[:, members]
    return np.asarray((value * weight).sum(1) / np.maximum(weight.sum(1), 1e-9))


def even(value: Float[Floats, "G K"]) -> Figure:
    """Return a figure in whose mean all episodes count equally."""
    return Figure(value, np.ones_like(value))


def _per_episode(probe: Probe, reduce: np.ufunc, values: Floats, start: float) -> Floats:
    """Reduce values of rows, `[N]`, to values of their episodes, `[G, K]`."""
    found = np.full(probe.episodes.returns.shape, start)
    reduce.at(found, (probe.group, probe.member), values)
    return found


def _td(parts: PpoComponents, probe: Probe) -> Figure:
    """Return the mean absolute temporal-difference error of the value that the policy acted with."""
    rows = probe.batch
    error = np.asarray(jnp.abs(rows.reward + parts.cfg.algo.gamma * rows.bootstrap - rows.value_old), np.float64)
    weight = np.asarray(rows.weight, np.float64)
    total = _per_episode(probe, np.add, np.where(weight > 0, error, 0.0).sum(0), 0.0)
    count = _per_episode(probe, np.add, weight.sum(0), 0.0)
    return Figure(total / np.maximum(count, 1.0), count)


def _level(parts: PpoComponents, probe: Probe) -> Figure:
    """Return the highest level that an episode reaches."""
    assert parts.env.spec.level is not None
    level = np.asarray(parts.env.spec.level(probe.batch.obs), np.float64)
    seen = np.where(np.asarray(probe.batch.weight) > 0, level, -np.inf).max(0)
    return even(_per_episode(probe, np.maximum, seen, -np.inf))


def _consequence(parts: PpoComponents, prober: Prober) -> Ranker:
    """Build `make_consequence` for the policy that acted."""

    def act(state: TrainState, obs: Array, legal: Array, keys: Key) -> Array:
        carry, reset = parts.net.initial_carry(legal.shape[:2]), jnp.zeros(legal.shape[0], bool)
        decision, _ = policy_of(parts, state).act(carry, obs, legal, reset, jax.random.key(0))
        # The policy samples a whole batch with one key; rows that are compared have keys of their own.
        return jax.vmap(distributions.sample)(keys, jnp.log(decision.probs), legal)

    num_envs, num_agents = prober.num_groups * prober.per_group, parts.env.spec.num_agents

    def first(leaf: Array) -> Array:
        """Return the first step of every episode: `[H, N, ...]` to `[E, A, ...]`."""
        return leaf[0, : num_envs * num_agents].reshape(num_envs, num_agents, *leaf.shape[2:])

    figure = make_consequence(parts.env, act, prober, parts.cfg.algo.gamma)
    return lambda probe, state, key: figure(
        state, key, first(probe.batch.obs), first(probe.batch.legal), first(probe.batch.action)
    )


def make_consequence(env: Env, act: Callable[..., Array], prober: Prober, gamma: float) -> Consequences:
    """Build the function that measures how much the first action of an episode matters.

    It compares the returns after that action with those after up to 8 random legal alternatives, each played 8 times
    for 20 steps with the policy that acted: the Wasserstein-1 distance under common random numbers of `hmx.scoring`.
    `act` is as of `Continuation`; the starts of `prober`, with the key of the probe, are those of the episodes.

    Returns:
        `(state, key of the probe, obs, legal, action) -> Figure`, of the first step of every episode, `[E, A, ...]`.
    """
    alternatives = min(_ALTERNATIVES, env.spec.num_actions - 1)
    options = ScoreOptions(
        actions="sampled", num_actions=alternatives, rollouts=_ROLLOUTS, horizon=_HORIZON, bootstrap=False, gamma=gamma,
        team_reward="mean",
    )  # fmt: skip
    scorer = make_scorer(env, Continuation(act), options)

    def figure(state: TrainState, key: Key, obs: Array, legal: Array, action: Array) -> Figure:
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
