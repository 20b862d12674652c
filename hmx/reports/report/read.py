"""The curves of a run page: at most a few hundred points per agent, and means over agents."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hmx.errors import counted
from hmx.records.curves import ABSENT, AgentCurves, MetricCurves
from hmx.records.jsonl import NONFINITE
from hmx.records.metrics_table import METRICS
from hmx.reports.report.findings import Curve, SeedCurves
from hmx.stats.intervals import LEVEL, Floats, t_quantile

POINTS = 240  # of a curve, at most
AGENTS = 16  # agents with all points; with more agents, each has fewer, so that a page stays small
FEWEST = 3  # minimum agents for an interval: with 2, Student's t is too wide to be useful

_COUNTERS = {"update", "env_steps", "elapsed", "wall_time", NONFINITE}
_EPISODES = "train/num_episodes"
_EPISODE = ("train/mean_episode_return", "train/mean_episode_length")
_COUNTED = ("stats", "programs")  # groups of metrics whose sums are shown per episode


def seed_curves(found: MetricCurves) -> tuple[SeedCurves, ...]:
    """Average the metrics of each agent over equal parts of its updates."""
    most = max(POINTS * AGENTS // max(len(found.agents), AGENTS), 8)
    return tuple(_averaged(agent, most, len(found.agents)) for agent in found.agents)


def nonfinite(found: MetricCurves) -> list[str]:
    """Return a warning if values are not finite; curves leave these out."""
    bad = sum(int(np.isnan(column).sum()) for agent in found.agents for column in agent.columns.values())
    return [f"{counted(bad, 'value')} left out of the curves: not finite"] if bad else []


def _averaged(agent: AgentCurves, most: int, agents: int) -> SeedCurves:
    columns = {name: np.array(column) for name, column in agent.columns.items()}
    steps = np.array(agent.steps, np.int64)
    missing = np.full(len(steps), ABSENT)
    updates = columns.get("update", missing)
    numbers = np.where(np.isfinite(updates), updates, np.arange(1, len(steps) + 1)).astype(np.int64)
    stride = 1
    while len(np.unique(numbers // stride)) > most:
        stride *= 2
    parts, place = np.unique(numbers // stride, return_inverse=True)
    ends = np.zeros(len(parts))
    np.maximum.at(ends, place, steps)
    seconds = np.array(agent.seconds(agents))
    known = np.isfinite(seconds)
    minutes = np.full(len(parts), np.nan)
    minutes[place[known]] = seconds[known] / 60
    episodes = columns.get(_EPISODES, missing)
    weights = np.where(np.isfinite(episodes), np.maximum(episodes, 1.0), 1.0)
    ended: Floats = np.bincount(place, np.where(np.isfinite(episodes), episodes, 0.0), len(parts)).astype(np.float64)
    values = {
        name: _per_episode(columns[name], place, ended)
        if per_episode(name)
        else _reduced(name, columns[name], place, weights if name in _EPISODE else np.ones(len(steps)), len(parts))
        for name in sorted(columns.keys() - _COUNTERS)
    }
    reported = {name: found for name, found in values.items() if any(value is not None for value in found)}
    return SeedCurves(agent.seed, tuple(ends.tolist()), _known(minutes), reported)


def _reduced(
    name: str, values: Floats, place: NDArray[np.intp], weights: Floats, parts: int
) -> tuple[float | None, ...]:
    """Reduce a metric over each part as its table says."""
    there = np.isfinite(values)
    values, place, weights = values[there], place[there], weights[there]
    total = np.bincount(place, weights, parts)
    info = METRICS.get(name)
    if info is not None and info.reduce == "max":
        reduced = np.full(parts, -np.inf)
        np.maximum.at(reduced, place, values)
    else:
        reduced = np.bincount(place, values * weights, parts) / np.where(total > 0, total, 1.0)
    return _known(np.where(total > 0, reduced, np.nan))


def per_episode(metric: str) -> bool:
    """Return whether a page shows a count of events per episode instead of per update."""
    info = METRICS.get(metric)
    return info is not None and info.reduce == "sum" and info.group in _COUNTED


def _per_episode(values: Floats, place: NDArray[np.intp], ended: Floats) -> tuple[float | None, ...]:
    """Divide the events since the last part in which an episode ended by the episodes that ended.

    The first such part is left out: episodes that end before every environment has ended one are not counted.
    """
    events = np.cumsum(np.bincount(place, np.where(np.isfinite(values), values, 0.0), len(ended)))
    there = np.flatnonzero(ended)
    counts = np.full(len(ended), np.nan)
    counts[there[1:]] = np.diff(events[there]) / ended[there[1:]]
    return _known(counts)


def _known(values: Floats) -> tuple[float | None, ...]:
    return tuple(None if math.isnan(value) else value for value in values.tolist())


def mean_curve(seeds: Sequence[SeedCurves], metric: str) -> Curve | None:
    """Return the mean of a metric over agents, up to the end of the shortest one; None if no agent reports it."""
    lines = [_line(seed, metric) for seed in seeds if metric in seed.values]
    lines = [line for line in lines if len(line[0])]
    if not lines:
        return None
    ends = min(x[-1] for x, _, _ in lines)
    starts = min(max(x[0] for x, _, _ in lines), ends)
    longest = max((x for x, _, _ in lines), key=len)
    if all(len(x) == len(longest) and (x == longest).all() for x, _, _ in lines):
        grid = longest
    else:
        grid = np.linspace(starts, ends, min(len(longest), POINTS)) if ends > starts else np.array([ends])
    values = np.stack([np.interp(grid, x, y) for x, y, _ in lines])
    times = np.stack([np.interp(grid, x, t) for x, _, t in lines])
    mean = values.mean(0)
    low: Floats | None = None
    if len(lines) >= FEWEST:
        half = t_quantile((1 + LEVEL) / 2, len(lines) - 1) * values.std(0, ddof=1) / math.sqrt(len(lines))
        low, high = mean - half, mean + half
    ends_of = () if low is None else (tuple(low.tolist()), tuple(high.tolist()))
    return Curve(tuple(grid.tolist()), _known(times.mean(0)), tuple(mean.tolist()), *ends_of)


def _line(seed: SeedCurves, metric: str) -> tuple[Floats, Floats, Floats]:
    """Return steps, values and minutes of the parts that report a metric."""
    found = [
        (x, y, math.nan if t is None else t)
        for x, y, t in zip(seed.env_steps, seed.values[metric], seed.minutes, strict=True)
        if y is not None
    ]
    x, y, t = np.array(found, np.float64).reshape(-1, 3).T
    return x, y, t
