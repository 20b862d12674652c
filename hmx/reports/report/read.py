"""Read the metrics of a run in bounded time and memory, as curves of a few hundred points per agent."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hmx.errors import counted
from hmx.records import jsonl
from hmx.records.artefact import words
from hmx.records.metrics_table import METRICS
from hmx.records.paths import METRICS as METRICS_FILE
from hmx.reports.report.findings import Curve, SeedCurves
from hmx.stats.intervals import LEVEL, Floats, t_quantile

POINTS = 240  # of a curve, at most
AGENTS = 16  # agents with all points; with more agents, each has fewer, so that memory stays bounded
DECODED = 120_000  # approximate maximum of records; a longer file is sampled at random
FEWEST = 3  # minimum agents for an interval: with 2, Student's t is too wide to be useful

_PLAIN = ("schema", "run", "update", "env_steps", "seed", "elapsed", "wall_time", jsonl.NONFINITE)
_EPISODE = ("train/mean_episode_return", "train/mean_episode_length")


class ReadCurves(NamedTuple):
    """The curves of a metrics file, with its problems."""

    seeds: tuple[SeedCurves, ...]
    records: int
    last_update: int
    warnings: tuple[str, ...]
    whole: bool = True  # whether all records were read, not a sample


@dataclass
class _Bin:
    """Sums over equal parts of the updates of one agent."""

    steps: float = 0.0
    minutes: float | None = None
    total: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    weight: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    def add(self, name: str, total: float, weight: float) -> None:
        info = METRICS.get(name)
        if info is not None and info.reduce == "max":
            self.total[name], self.weight[name] = max(self.total.get(name, total), total), 1.0
        else:
            self.total[name] += total
            self.weight[name] += weight

    def join(self, other: _Bin) -> None:
        """Add the part that follows."""
        self.steps, self.minutes = max(self.steps, other.steps), other.minutes or self.minutes
        for name, weight in other.weight.items():
            self.add(name, other.total[name], weight)


@dataclass
class _Bins:
    """Parts of `stride` updates each; the stride doubles whenever there are too many."""

    stride: int = 1
    bins: dict[int, _Bin] = field(default_factory=dict)

    def at(self, update: int, most: int) -> _Bin:
        while update // self.stride not in self.bins and len(self.bins) >= most:
            self.stride *= 2
            merged: dict[int, _Bin] = {}
            for number in sorted(self.bins):
                merged.setdefault(number // 2, _Bin()).join(self.bins[number])
            self.bins = merged
        return self.bins.setdefault(update // self.stride, _Bin())


def read_curves(path: Path) -> ReadCurves:
    """Read a metrics file; damaged lines and values that are not finite are skipped and reported."""
    agents: defaultdict[int | None, _Bins] = defaultdict(_Bins)
    damaged = nonfinite = records = last = 0
    first_time: float | None = None
    try:
        share = _share(path)
        for _, line, record in jsonl.scan(path, share):
            update = None if record is None else jsonl.update_of(record)
            if record is None or update is None or update < 0:
                damaged += line.endswith(b"\n")
                continue
            records, last = records + 1, max(last, update)
            wall = jsonl.number(record.get("wall_time"))
            first_time = wall if first_time is None else first_time
            seed = record.get("seed")
            bins = agents[seed if type(seed) is int else None]
            part = bins.at(update, max(POINTS * AGENTS // max(len(agents), AGENTS), 8))
            nonfinite += _add(part, record, wall, first_time)
    except FileNotFoundError:
        return ReadCurves((), 0, 0, (f"it has no {METRICS_FILE}, so there are no curves",))
    except OSError as problem:
        return ReadCurves((), 0, 0, (f"cannot read its metrics: {words(problem)}",))
    warnings = []
    if share < 1:
        warnings.append(f"the metrics file is large: curves are from a random {share:.0%} of its records")
    if damaged:
        warnings.append(f"{counted(damaged, 'damaged line')} of the metrics file skipped")
    if nonfinite:
        warnings.append(f"{counted(nonfinite, 'value')} left out of the curves: not finite")
    if not records:
        warnings.append("it has no records yet, so there are no curves")
    seeds = sorted(agents.items(), key=lambda item: -1 if item[0] is None else item[0])
    return ReadCurves(tuple(_curves(seed, bins) for seed, bins in seeds), records, last, tuple(warnings), share == 1)


def _share(path: Path) -> float:
    """Return the share of lines to decode, so that their number stays bounded."""
    with path.open("rb") as file:
        start = file.read(1 << 18)
    lines = max(start.count(b"\n"), 1)
    found = path.stat().st_size / (len(start) / lines) if start else 0.0
    return min(1.0, DECODED / found) if found else 1.0


def _add(part: _Bin, record: Mapping[str, object], wall: float | None, start: float | None) -> int:
    """Add a record to its part; return how many of its values are not finite."""
    steps, elapsed = jsonl.number(record.get("env_steps")), jsonl.number(record.get("elapsed"))
    if elapsed is None and wall is not None and start is not None:
        elapsed = wall - start  # schema 1 has no time of training
    part.steps = max(part.steps, steps or 0.0)
    part.minutes = part.minutes if elapsed is None else elapsed / 60
    episodes = jsonl.number(record.get("train/num_episodes")) or 1.0
    bad = 0
    for name, given in record.items():
        value = jsonl.number(given)
        if value is not None and name not in _PLAIN:
            weight = max(episodes, 1.0) if name in _EPISODE else 1.0
            part.add(name, value * weight, weight)
        elif value is None and (given is None or type(given) is float):
            bad += 1
    return bad


def _curves(seed: int | None, bins: _Bins) -> SeedCurves:
    parts = [bins.bins[number] for number in sorted(bins.bins)]
    names = sorted({name for part in parts for name in part.weight})
    values = {
        name: tuple(part.total[name] / part.weight[name] if name in part.weight else None for part in parts)
        for name in names
    }
    return SeedCurves(seed, tuple(part.steps for part in parts), tuple(part.minutes for part in parts), values)


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
    minutes = tuple(None if math.isnan(t) else t for t in times.mean(0).tolist())
    ends_of = () if low is None else (tuple(low.tolist()), tuple(high.tolist()))
    return Curve(tuple(grid.tolist()), minutes, tuple(mean.tolist()), *ends_of)


def _line(seed: SeedCurves, metric: str) -> tuple[Floats, Floats, Floats]:
    """Return steps, values and minutes of the parts that report a metric."""
    found = [
        (x, y, math.nan if t is None else t)
        for x, y, t in zip(seed.env_steps, seed.values[metric], seed.minutes, strict=True)
        if y is not None
    ]
    x, y, t = np.array(found, np.float64).reshape(-1, 3).T
    return x, y, t
