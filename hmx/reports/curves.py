"""The metrics of an agent over its training: values at its end, areas, thresholds, means over agents.

Every command that reads a metric over time uses these two records. Only the rules of `hmx doctor` read records one at a
time in constant memory, because they also run while a run trains.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hmx.config.textfile import quoted
from hmx.records.curves import ABSENT, EPISODES, MEASURED_BEFORE, SPEED, AgentCurves, MetricCurves, read_curves
from hmx.records.jsonl import NONFINITE
from hmx.records.metrics_table import METRICS
from hmx.render.blocks import Series
from hmx.stats import aggregates
from hmx.stats.intervals import LEVEL, Floats, t_quantile
from hmx.stats.smoothing import smoothed

POINTS = 240  # of an averaged curve, at most
BAND_POINTS = 100  # of an interquartile mean
SMOOTHING = 0.05  # share of the compared steps over which values are averaged before they count as reached
MIN_REPORTS = 3  # minimum updates to average: the first episodes to end are short, a biased sample

_COUNTERS = {"update", "env_steps", "elapsed", "wall_time", NONFINITE}
_PER_EPISODE = ("mean_episode_return", "mean_episode_length")  # ends of the names of means over episodes
_COUNTED = ("stats", "programs")  # groups of metrics whose sums are shown per episode
_SLOWEST = 1e-9  # steps per second; lower speeds count as unknown
_FEWEST = 3  # minimum agents for Student's t: with 2, the interval is too wide to be useful
_ALL_POINTS = 16  # agents that keep all points of a page; more have fewer each

Over = Literal["steps", "time"]


def _none() -> Floats:
    return np.array([])


@dataclass(frozen=True, eq=False)
class Curve:
    """A metric at the updates that reported it, in order; values that are not finite are NaN.

    A mean over several agents has the ends of an interval too, unless they are too few.
    """

    steps: Floats  # environment steps
    time: Floats  # seconds of training until then, without compilation and saving; NaN if unknown
    values: Floats
    weights: Floats  # number of episodes in each mean; 1 for other metrics
    low: Floats = field(default_factory=_none)
    high: Floats = field(default_factory=_none)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Curve):
            return NotImplemented
        return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(self._fields, other._fields, strict=True))

    @property
    def _fields(self) -> tuple[Floats, ...]:
        return self.steps, self.time, self.values, self.weights, self.low, self.high

    def x(self, over: Over) -> Floats:
        """Return the steps or the time."""
        return self.steps if over == "steps" else self.time

    def part(self, kept: NDArray[np.bool_]) -> Curve:
        """Return the points that are kept."""
        return Curve(*(field[kept] if len(field) else field for field in self._fields))

    def until(self, end: float) -> Curve:
        """Return the part up to `end` steps."""
        return self.part(self.steps <= end)

    def since(self, start: float) -> Curve:
        """Return the part from `start` steps on, or the last point."""
        return self.part((self.steps >= start) | (self.steps == self.steps[-1:]))

    def within(self, low: float = -math.inf, high: float = math.inf) -> Curve:
        """Return the points with finite values between two bounds."""
        return self.part(np.isfinite(self.values) & (self.values >= low) & (self.values <= high))

    def smooth(self) -> Curve:
        """Smooth finite values, and their interval."""
        low, high = (smoothed(self.steps, ends) if len(ends) else ends for ends in (self.low, self.high))
        return replace(self, values=smoothed(self.steps, self.values), low=low, high=high)

    def final(self, end: float, width: float) -> tuple[float | None, str]:
        """Return the mean over the last `width` steps before `end`, weighted by episodes, or None and the reason.

        Without a value in that part, for example because no episode ended, the latest value before it counts.
        """
        known = self.until(end)
        if not len(known.steps):
            return None, "was never reported"
        inside = known.steps > end - width
        inside[-1] |= not inside.any()
        last = known.part(inside)
        if not np.isfinite(last.values).all():
            return None, "is not finite at the end"
        # As an offset from the first value, so that equal values have exactly that mean.
        first = last.values[0]
        return float(first + (last.weights / last.weights.sum() * (last.values - first)).sum()), ""

    def area(self, end: float) -> float | None:
        """Return the area under the curve from 0 to `end`, divided by `end`: the average over training.

        The curve is straight between reports, and constant before the first and after the last.
        """
        known = self.until(end)
        if end <= 0 or not len(known.steps) or not np.isfinite(known.values).all():
            return None
        steps = np.concatenate([[0.0], known.steps, [end]])
        values = np.concatenate([known.values[:1], known.values, known.values[-1:]])
        return float((np.diff(steps) * (values[1:] + values[:-1]) / 2).sum() / end)

    def reached(self, threshold: float, end: float, up: bool = True) -> tuple[float, float] | None:
        """Return the first steps and time at which the moving average was at least (`up`) or at most the threshold.

        The average is over the last `SMOOTHING` of the compared steps, and over at least `MIN_REPORTS` updates. None if
        it never was.
        """
        known = self.until(end)
        good = np.isfinite(known.values)
        totals = np.concatenate([[0.0], np.cumsum(np.where(good, known.values, 0.0) * known.weights)])
        counts = np.concatenate([[0.0], np.cumsum(known.weights)])
        bad = np.concatenate([[0], np.cumsum(~good)])
        first = np.searchsorted(known.steps, known.steps - SMOOTHING * end, side="right")
        last = np.arange(1, len(known.steps) + 1)
        first = np.maximum(np.minimum(first, last - MIN_REPORTS), 0)
        means = (totals[last] - totals[first]) / (counts[last] - counts[first])
        enough = (means >= threshold) if up else (means <= threshold)
        enough &= (bad[last] == bad[first]) & (last - first >= MIN_REPORTS)
        hits = np.flatnonzero(enough)
        return (float(known.steps[hits[0]]), float(known.time[hits[0]])) if len(hits) else None

    def around(self, at: float, width: float) -> float | None:
        """Return the mean of the `width` steps that end at `at`; None without finite values."""
        values = self.part((self.steps <= at) & (self.steps > at - width)).within().values
        return float(values.mean()) if len(values) else None

    def series(self, name: str, over: Over = "steps", colour: int = 0) -> Series:
        """Return the curve as a line of a plot, with its interval."""
        x, y, low, high = (points(part) for part in (self.x(over), self.values, self.low, self.high))
        return Series(name, tuple(at for at in x if at is not None), y, low=low, high=high, colour=colour)


def points(values: Floats) -> tuple[float | None, ...]:
    """Return values as plain numbers, None for NaN."""
    return tuple(None if math.isnan(value) else value for value in values.tolist())


@dataclass(frozen=True, eq=False)
class AgentMetrics:
    """One agent of a run with its metrics, its records in the order of their steps."""

    run: str  # label of the run
    number: int | None  # its seed; None if the records do not say
    steps: Floats  # environment steps after each record
    time: Floats  # seconds of training until then, without compilation and saving; NaN if unknown
    columns: Mapping[str, Floats]  # metrics: `ABSENT` where a record lacks one, NaN for a value that is not finite
    updates: Floats  # number of the update of each record
    task: str = ""  # id of the environment; "" if unknown
    source: str = ""  # id of its run, or its file
    repeats: AgentMetrics | None = None  # another one that it is the same as, and counts as one sample with

    @property
    def who(self) -> str:
        """Its run and its number."""
        return self.run + ("" if self.number is None else f" seed {self.number}")

    @property
    def end(self) -> int:
        """Environment steps after the last update; 0 without updates."""
        return int(self.steps[-1]) if len(self.steps) else 0

    @property
    def update(self) -> int:
        """The last update; 0 without records."""
        return int(self.updates.max(initial=0.0))

    def curve(self, name: str) -> Curve:
        """Return a metric where it was reported; evaluations are of the agent before the update of their record."""
        values, steps, time = self.column(name), self.steps, self.time
        there = values != ABSENT
        weights = np.ones(len(values))
        if name.startswith(MEASURED_BEFORE):
            first = np.maximum(2 * steps[:1] - steps[1:2], 0.0) if len(steps) > 1 else np.zeros(len(steps))
            steps, time = (np.concatenate([start, at[:-1]]) for start, at in ((first, steps), (first * 0.0, time)))
        if name.endswith(_PER_EPISODE):
            episodes = self.column(EPISODES)
            weights = np.where(np.isfinite(episodes), np.maximum(episodes, 1.0), 1.0)
        return Curve(steps[there], time[there], values[there], weights[there])

    def only(self, names: Set[str]) -> AgentMetrics:
        """Return the agent with some of its metrics."""
        return replace(self, columns={name: column for name, column in self.columns.items() if name in names})

    def column(self, name: str) -> Floats:
        """Return a metric, one value per record."""
        return self.columns.get(name, np.full(len(self.steps), ABSENT))


def read_metrics(path: Path, names: Set[str] = frozenset(), speed: str = SPEED) -> MetricCurves:
    """Read a metrics file for `agents_of`: the metrics `names`, or all of them.

    Raises:
        NewerSchema: a later hmx wrote it (exit code 3).
    """
    return read_curves(path, {*names, *_COUNTERS, speed, EPISODES} if names else None)


def agents_of(
    found: MetricCurves, label: str = "", task: str = "", source: str = "", side_by_side: int = 0, speed: str = SPEED
) -> tuple[AgentMetrics, ...]:
    """Return the agents of a file.

    Args:
        found: the records of the file.
        label: name of the run.
        task: id of its environment.
        source: the file.
        side_by_side: agents that share the speed in the records; 0 for all agents of the file.
        speed: metric from which times follow; `CPU_SPEED` gives seconds of CPU time.
    """
    return tuple(_agent(agent, label, task, source, side_by_side or len(found.agents), speed) for agent in found.agents)


def _agent(agent: AgentCurves, label: str, task: str, source: str, side_by_side: int, speed: str) -> AgentMetrics:
    steps, updates = np.array(agent.steps, np.float64), np.array(agent.column("update"))
    updates = np.where(np.isfinite(updates), updates, np.arange(1, len(steps) + 1))
    order = np.argsort(steps)
    speeds = np.array(agent.column(speed))[order]
    known = np.isfinite(speeds) & (speeds > _SLOWEST)
    seconds = np.diff(steps[order], prepend=0.0) * side_by_side / np.where(known, speeds, np.nan)
    return AgentMetrics(
        run=f"{label} {quoted(agent.run)}".strip(),
        number=agent.seed,
        steps=steps[order],
        time=np.cumsum(seconds),
        columns={
            name: np.array(column, np.float64)[order]
            for name, column in sorted(agent.columns.items())
            if name not in _COUNTERS
        },
        updates=updates[order],
        task=task,
        source=f"{agent.run_id or source} {agent.run}",
    )


def per_episode(metric: str) -> bool:
    """Return whether `averaged` shows a count of events per episode instead of per update."""
    info = METRICS.get(metric)
    return info is not None and info.reduce == "sum" and info.group in _COUNTED


def drawn_agents(agents: Sequence[AgentMetrics]) -> tuple[AgentMetrics, ...]:
    """Average agents for a page: many have fewer points each, so that the page stays small."""
    most = max(POINTS * _ALL_POINTS // max(len(agents), _ALL_POINTS), 8)
    return tuple(averaged(agent, most) for agent in agents)


def averaged(agent: AgentMetrics, most: int = POINTS) -> AgentMetrics:
    """Average the metrics of an agent over at most `most` equal parts of its updates; NaN if a part has no value.

    Events that are counted per episode are divided by the episodes that ended.
    """
    updates, stride = agent.updates, 1
    while len(np.unique(updates // stride)) > most:
        stride *= 2
    parts, place = np.unique(updates // stride, return_inverse=True)
    steps, time = np.zeros(len(parts)), np.full(len(parts), np.nan)
    np.maximum.at(steps, place, agent.steps)
    known = np.isfinite(agent.time)
    time[place[known]] = agent.time[known]
    ended = _sums(agent, EPISODES, place, len(parts))
    columns = {
        name: _per_ended(_sums(agent, name, place, len(parts)), ended)
        if per_episode(name)
        else _reduced(agent, name, place, len(parts))
        for name in agent.columns
    }
    reported = {name: column for name, column in columns.items() if np.isfinite(column).any()}
    return replace(agent, steps=steps, time=time, columns=reported, updates=(parts + 1) * stride - 1)


def _sums(agent: AgentMetrics, name: str, place: NDArray[np.intp], parts: int) -> Floats:
    values = agent.column(name)
    return np.bincount(place, np.where(np.isfinite(values), values, 0.0), parts).astype(np.float64)


def _reduced(agent: AgentMetrics, name: str, place: NDArray[np.intp], parts: int) -> Floats:
    """Reduce a metric over each part as its table says."""
    place = place[np.isfinite(agent.column(name))]
    curve = agent.curve(name).within()
    total = np.bincount(place, curve.weights, parts)
    info = METRICS.get(name)
    if info is not None and info.reduce == "max":
        reduced = np.full(parts, -np.inf)
        np.maximum.at(reduced, place, curve.values)
    else:
        reduced = np.bincount(place, curve.values * curve.weights, parts) / np.where(total > 0, total, 1.0)
    return np.where(total > 0, reduced, np.nan)


def _per_ended(events: Floats, ended: Floats) -> Floats:
    """Divide the events since the last part in which an episode ended by the episodes that ended.

    The first such part is left out: episodes that end before every environment has ended one are not counted.
    """
    total, there = np.cumsum(events), np.flatnonzero(ended)
    counts = np.full(len(ended), np.nan)
    counts[there[1:]] = np.diff(total[there]) / ended[there[1:]]
    return counts


def mean_curve(agents: Iterable[AgentMetrics], name: str) -> Curve | None:
    """Return the mean of a metric over agents, up to the end of the shortest one; None if no agent reports it.

    The interval is Student's t of `LEVEL`.
    """
    lines = [line for agent in agents if len((line := agent.curve(name).within()).steps)]
    if not lines:
        return None
    end = min(line.steps[-1] for line in lines)
    start = min(max(line.steps[0] for line in lines), end)
    grid = max((line.steps for line in lines), key=len)
    if not all(np.array_equal(line.steps, grid) for line in lines):
        grid = np.linspace(start, end, min(len(grid), POINTS)) if end > start else np.array([end])
    values = np.stack([np.interp(grid, line.steps, line.values) for line in lines])
    time = np.stack([np.interp(grid, line.steps, line.time) for line in lines]).mean(0)
    mean, low, high = values.mean(0), _none(), _none()
    if len(lines) >= _FEWEST:
        half = t_quantile((1 + LEVEL) / 2, len(lines) - 1) * values.std(0, ddof=1) / math.sqrt(len(lines))
        low, high = mean - half, mean + half
    return Curve(grid, time, mean, np.full(len(grid), float(len(lines))), low, high)


def band(agents: Sequence[AgentMetrics], name: str, over: Over, resamples: int, seed: int) -> Curve | None:
    """Return the interquartile mean of a metric over agents, up to the end of the shortest one, with its interval.

    Only the axis `over` has values; the other one is NaN. None if an agent has no finite values, or if one ends before
    another reports its first.
    """
    curves = [agent.curve(name) for agent in agents if name in agent.columns]
    lines = [line.part(np.isfinite(line.x(over))) for line in (curve.within() for curve in curves)]
    if not lines or min(len(line.values) for line in lines) < 1:
        return None
    start = max(line.x(over)[0] for line in lines)
    end = min(line.x(over)[-1] for line in lines)
    if start > end:
        return None
    edges = np.linspace(0.0, end, BAND_POINTS + 1)
    grid = edges[1:]
    keep = grid >= start
    keep[-1] |= not keep.any()
    binned = np.stack([_binned(line.x(over), line.values, edges) for line in lines])[:, keep]
    center, low, high = (_none() if part is None else part for part in aggregates.band(binned, resamples, seed))
    x, unknown = grid[keep], np.full(int(keep.sum()), np.nan)
    steps, time = (x, unknown) if over == "steps" else (unknown, x)
    return Curve(steps, time, center, np.full(len(x), float(len(lines))), low, high)


def _binned(x: Floats, y: Floats, edges: Floats) -> Floats:
    """Return the mean in each bin, with straight lines across empty bins."""
    places = np.clip(np.searchsorted(edges, x, side="left") - 1, 0, len(edges) - 2)
    inside = x <= edges[-1] * (1 + 1e-9)
    counts = np.bincount(places[inside], minlength=len(edges) - 1)
    totals = np.bincount(places[inside], weights=y[inside], minlength=len(edges) - 1)
    full = counts > 0
    return np.interp(edges[1:], edges[1:][full], totals[full] / counts[full])
