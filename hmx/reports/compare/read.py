"""Read each member of a side: its configuration, meta data, evaluation, and curves by seed.

Damage never stops the reading: unreadable parts are skipped and reported.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hmx.config.files import words
from hmx.config.schema import Config
from hmx.config.textfile import quoted
from hmx.jobs.evaluation import RANDOM, PolicyStats, read_evaluation
from hmx.jobs.runs import state_of
from hmx.records import frozen, jsonl
from hmx.records.curves import ABSENT, NO_RECORDS, AgentCurves, damage, read_curves
from hmx.records.meta import Meta
from hmx.records.paths import RunPaths
from hmx.registry.load import load
from hmx.reports.compare.imported import is_imported, read_imported
from hmx.reports.compare.sides import MemberPath, SidePaths
from hmx.stats.intervals import Floats

RATE = "train/steps_per_sec"
EPISODES = "train/num_episodes"

_SLOWEST = 1e-9  # steps per second; lower speeds count as unknown

_Read = tuple[tuple["Seed", ...], list[str], float | None]  # seeds of a file, warnings, and the moment training began


@dataclass(frozen=True)
class MetricSeries:
    """One metric of one seed, at the updates that reported it; values that were not finite are NaN."""

    steps: NDArray[np.int64]
    time: Floats
    values: Floats
    weights: Floats  # number of episodes in the mean; 1 for other metrics

    def until(self, end: float) -> MetricSeries:
        """Return the part up to `end` steps."""
        keep = self.steps <= end
        return MetricSeries(self.steps[keep], self.time[keep], self.values[keep], self.weights[keep])


@dataclass(frozen=True)
class Seed:
    """One agent of a run with its metrics."""

    run: str  # label of the run
    number: int | None
    task: str  # id of the environment; "" if unknown
    steps: NDArray[np.int64]  # after each update
    time: Floats  # seconds of training until then, without compilation and saving; NaN if unknown
    series: Mapping[str, MetricSeries]
    updates: int

    @property
    def end(self) -> int:
        """Environment steps after the last update; 0 without updates."""
        return int(self.steps[-1]) if len(self.steps) else 0


@dataclass(frozen=True, kw_only=True)
class Member:
    """A run, metrics file or configuration of a side, as read."""

    path: MemberPath
    config: Config | None = None
    meta: Meta | None = None
    state: str = ""
    seeds: tuple[Seed, ...] = ()
    evaluation: tuple[PolicyStats, ...] = ()
    startup: float | None = None  # seconds from creating the folder to the first update
    warnings: tuple[str, ...] = ()

    @property
    def trained(self) -> tuple[PolicyStats, ...]:
        """The evaluation of the trained agents: PPO by sampling, Q-learning greedily."""
        return tuple(row for row in self.evaluation if row.policy != RANDOM)


@dataclass(frozen=True)
class Side:
    """All members of a side."""

    letter: str
    name: str
    members: tuple[Member, ...]

    @property
    def seeds(self) -> tuple[Seed, ...]:
        """All agents of all runs."""
        return tuple(seed for member in self.members for seed in member.seeds)

    @property
    def trained_seeds(self) -> tuple[Seed, ...]:
        """The agents that have records."""
        return tuple(seed for seed in self.seeds if len(seed.steps))

    @property
    def configs(self) -> tuple[Config, ...]:
        """All known configurations."""
        return tuple(member.config for member in self.members if member.config is not None)


def read_side(paths: SidePaths, names: Set[str]) -> Side:
    """Read all members of a side; refuse configurations that cannot be read, and files of a newer hmx."""
    return Side(paths.letter, paths.name, tuple(_member(path, {*names, RATE, EPISODES}) for path in paths.members))


def _member(path: MemberPath, names: Set[str]) -> Member:
    match path.kind:
        case "preset":
            return Member(path=path, config=load(preset=str(path.path), environ={}, check=False).config)
        case "config":
            return Member(path=path, config=load(file=path.path, environ={}, check=False).config)
        case "metrics":
            read = _imported if is_imported(path.path) else _curves
            seeds, warnings, _ = read(path.path, path.label, "", names)
            return Member(path=path, seeds=seeds, warnings=tuple(warnings))
    folder = path.path.resolve()
    paths = RunPaths(folder.parent, folder.name)
    config, meta, found = frozen.describe(paths)
    rows, more = read_evaluation(paths)
    rows = tuple(row for row in rows if jsonl.number(row.return_mean) is not None)
    seeds, warnings, first = _curves(paths.metrics, path.label, config.env.id if config else "", names)
    return Member(
        path=path, config=config, meta=meta, state=state_of(paths, meta), seeds=seeds, evaluation=rows,
        startup=_startup(meta, first), warnings=(*found, *more, *warnings, *frozen.foreign_files(paths)),
    )  # fmt: skip


def _curves(path: Path, label: str, task: str, names: Set[str]) -> _Read:
    found = read_curves(path, {*names, "update", "wall_time"})
    seeds = tuple(_seed(label, task, agent, len(found.agents)) for agent in found.agents)
    return seeds, list(found.warnings), _began(found.agents)


def _imported(path: Path, label: str, task: str, names: Set[str]) -> _Read:
    """Read metrics of another program: its seeds have no numbers, and times are unknown."""
    try:
        found = read_imported(path)
    except OSError as problem:
        return (), [f"cannot read its metrics: {words(problem)}"], None
    seeds = []
    for run, curve in found.curves.items():
        agent = AgentCurves(None, names)
        for steps, values in curve.items():
            agent.add(steps, values)
        seeds.append(_seed(f"{label} {quoted(run)}".strip(), task, agent, 1))
    return tuple(seeds), [*damage(found.damaged), *([] if seeds else [NO_RECORDS])], None


def _seed(label: str, task: str, agent: AgentCurves, seeds: int) -> Seed:
    steps = np.array(agent.steps, np.int64)
    order = np.argsort(steps)
    columns = {name: np.array(column, np.float64)[order] for name, column in agent.columns.items()}
    steps, missing = steps[order], np.full(len(steps), ABSENT)
    time = _times(steps, columns.get(RATE, missing), seeds)
    episodes = columns.get(EPISODES, missing)
    series = {
        name: _series(name, steps, time, columns[name], episodes)
        for name in sorted(columns.keys() - {"update", "wall_time"})
    }
    return Seed(label, agent.seed, task, steps, time, series, agent.update)


def _series(name: str, steps: NDArray[np.int64], time: Floats, values: Floats, episodes: Floats) -> MetricSeries:
    there = values != ABSENT
    weights = np.ones(len(values))
    if name.endswith(("mean_episode_return", "mean_episode_length")):
        weights = np.where(np.isfinite(episodes), np.maximum(episodes, 1.0), 1.0)
    return MetricSeries(steps[there], time[there], values[there], weights[there])


def _times(steps: NDArray[np.int64], rates: Floats, seeds: int) -> Floats:
    """Return seconds of training; the rate in a record is that of its chunk over all seeds."""
    taken = np.diff(steps, prepend=0) * seeds
    known = np.isfinite(rates) & (rates > _SLOWEST)
    return np.cumsum(taken / np.where(known, rates, np.nan))


def _began(agents: Sequence[AgentCurves]) -> float | None:
    """Return the moment the first chunk began; every record of a chunk has the time of its end."""
    if not agents:
        return None
    first = agents[0]
    moments, rates = first.column("wall_time"), first.column(RATE)
    start = min(range(len(moments)), key=first.steps.__getitem__)
    if not math.isfinite(moments[start]):
        return None
    taken = max(steps for steps, moment in zip(first.steps, moments, strict=True) if moment == moments[start])
    known = math.isfinite(rates[start]) and rates[start]
    return moments[start] - (taken * len(agents) / rates[start] if known else 0.0)


def _startup(meta: Meta | None, first: float | None) -> float | None:
    if meta is None or first is None:
        return None
    try:
        created = datetime.datetime.fromisoformat(meta.created).timestamp()
    except ValueError:
        return None
    return first - created if 0 <= first - created < 86_400 else None
