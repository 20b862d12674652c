"""The values that rank groups: a value of every episode, averaged over the group."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from hmx.algos.gradients.buckets import Floats, Ints, reward_std
from hmx.algos.gradients.probe import Probe, ProbeEpisodes
from hmx.algos.gradients.request import RankBy
from hmx.algos.ppo.components import PpoComponents


class Figure(NamedTuple):
    """A value of every episode, and its weight in the mean over a group."""

    value: Floats  # [G, K]
    weight: Floats  # [G, K]


Ranker = Callable[[Probe], Figure | None]


def make_ranker(parts: PpoComponents, by: RankBy) -> Ranker:
    """Build the function that ranks the groups of a PPO probe; it returns None for `reward_std`."""
    return lambda probe: _td(parts, probe) if by == "td" else of_episodes(by, probe.episodes)


def of_episodes(by: RankBy, episodes: ProbeEpisodes) -> Figure | None:
    """Return the returns of the episodes, which count equally; None for values of another kind."""
    return Figure(episodes.returns, np.ones_like(episodes.returns)) if by == "return" else None


def score(figure: Figure | None, returns: Float[Floats, "G K"], members: Int[Ints, " k"]) -> Float[Floats, " G"]:
    """Return the values that rank the groups, over some of their members, `[G]`; None means `reward_std`."""
    if figure is None:
        return reward_std(returns[:, members])
    value, weight = figure.value[:, members], figure.weight[:, members]
    return np.asarray((value * weight).sum(1) / np.maximum(weight.sum(1), 1e-9))


def _per_episode(probe: Probe, values: Floats) -> Floats:
    """Sum values of rows, `[N]`, over the rows of their episodes, `[G, K]`."""
    found = np.zeros(probe.episodes.returns.shape)
    np.add.at(found, (probe.group, probe.member), values)
    return found


def _td(parts: PpoComponents, probe: Probe) -> Figure:
    """Return the mean absolute temporal-difference error of the value that the policy acted with."""
    rows = probe.batch
    error = np.asarray(jnp.abs(rows.reward + parts.cfg.algo.gamma * rows.bootstrap - rows.value_old), np.float64)
    weight = np.asarray(rows.weight, np.float64)
    total = _per_episode(probe, np.where(weight > 0, error, 0.0).sum(0))
    count = _per_episode(probe, weight.sum(0))
    return Figure(total / np.maximum(count, 1.0), count)
