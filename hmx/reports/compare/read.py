"""Read each member of a side: its configuration, meta data, evaluation, and curves by seed.

Damage never stops the reading: unreadable parts are skipped and reported.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hmx.config.schema import Config
from hmx.config.textfile import quoted
from hmx.errors import counted
from hmx.jobs.evaluation import RANDOM, PolicyStats, read_evaluation
from hmx.jobs.runs import state_of
from hmx.records import frozen, jsonl
from hmx.records.artefact import words
from hmx.records.meta import Meta
from hmx.records.paths import METRICS, RunPaths
from hmx.registry.load import load
from hmx.reports.compare.imported import is_imported, read_imported
from hmx.reports.compare.sides import MemberPath, SidePaths
from hmx.stats.intervals import Floats

RATE = "train/steps_per_sec"
EPISODES = "train/num_episodes"

_SLOWEST = 1e-9  # steps per second; lower speeds count as unknown

Record = Mapping[str, object]
_Records = dict[int, dict[str, object]]  # by environment steps
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


def read_side(paths: SidePaths, names: Collection[str]) -> Side:
    """Read all members of a side; refuse configurations that cannot be read, and files of a newer hmx."""
    return Side(paths.letter, paths.name, tuple(_member(path, {*names, RATE, EPISODES}) for path in paths.members))


def _member(path: MemberPath, names: Collection[str]) -> Member:
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


def _curves(path: Path, label: str, task: str, names: Collection[str]) -> _Read:
    by_seed: dict[int | None, _Records] = {}
    damaged: list[int] = []
    try:
        for line_number, line, record in jsonl.scan(path):
            steps = None if record is None else _steps(record)
            if record is None or steps is None:
                damaged += [line_number] if line.endswith(b"\n") else []
                continue
            seed = record.get("seed")
            kept = {name: record[name] for name in names if name in record}
            kept["wall_time"] = record.get("wall_time")
            by_seed.setdefault(seed if type(seed) is int else None, {})[steps] = kept
    except FileNotFoundError:
        return (), [f"it has no {METRICS}"], None
    except OSError as problem:
        return (), [f"cannot read its metrics: {words(problem)}"], None
    in_order = sorted(by_seed.items(), key=lambda item: -1 if item[0] is None else item[0])
    seeds = tuple(_seed(label, seed, task, found, len(by_seed)) for seed, found in in_order)
    return seeds, _problems(damaged, seeds), _began(by_seed)


def _imported(path: Path, label: str, task: str, names: Collection[str]) -> _Read:
    """Read metrics of another program: its seeds have no numbers, and times are unknown."""
    try:
        found = read_imported(path)
    except OSError as problem:
        return (), [f"cannot read its metrics: {words(problem)}"], None
    seeds = []
    for run, curve in found.curves.items():
        kept = {step: {name: values[name] for name in names if name in values} for step, values in curve.items()}
        seeds.append(_seed(f"{label} {quoted(run)}".strip(), None, task, kept, 1))
    return tuple(seeds), _problems(found.damaged, seeds), None


def _problems(damaged: Sequence[int], seeds: Sequence[Seed]) -> list[str]:
    found = [] if seeds else ["it has no records yet"]
    if damaged:
        which = ", ".join(map(str, damaged[:5])) + (" and more" if len(damaged) > 5 else "")
        found.insert(0, f"skipped {counted(len(damaged), 'damaged line')} of its metrics: {which}")
    return found


def _steps(record: Record) -> int | None:
    for key in ("env_steps", "train/env_steps"):
        value = jsonl.number(record.get(key))
        if value is not None and 0 <= value < 2**53 and value == int(value):
            return int(value)
    return None


def _seed(label: str, seed: int | None, task: str, by_steps: _Records, seeds: int) -> Seed:
    steps = np.array(sorted(by_steps), np.int64)
    records = [by_steps[step] for step in steps]
    time = _times(steps, records, seeds)
    names = {name for record in records for name in record} - {"wall_time"}
    return Seed(label, seed, task, steps, time, {name: _series(name, steps, time, records) for name in sorted(names)})


def _series(name: str, steps: NDArray[np.int64], time: Floats, records: Sequence[Record]) -> MetricSeries:
    there = np.array([name in record for record in records], bool)
    values = np.array([_value(record[name]) for record in records if name in record], np.float64)
    weights = np.ones(len(values))
    if name.endswith(("mean_episode_return", "mean_episode_length")):
        found = [jsonl.number(record.get(EPISODES)) or 1.0 for record in records if name in record]
        weights = np.maximum(np.array(found, np.float64), 1.0)
    return MetricSeries(steps[there], time[there], values, weights)


def _value(value: object) -> float:
    found = jsonl.number(value)
    return math.nan if found is None else found


def _times(steps: NDArray[np.int64], records: Sequence[Record], seeds: int) -> Floats:
    """Return seconds of training; the rate in a record is that of its chunk over all seeds."""
    taken = np.diff(steps, prepend=0) * seeds
    rates = np.array([_value(record.get(RATE)) for record in records], np.float64)
    return np.cumsum(taken / np.where(rates > _SLOWEST, rates, np.nan))


def _began(by_seed: Mapping[int | None, _Records]) -> float | None:
    """Return the moment the first chunk began; every record of a chunk has the time of its end."""
    for found in by_seed.values():
        steps = sorted(found)
        moment = jsonl.number(found[steps[0]]["wall_time"])
        if moment is None:
            return None
        chunk = [step for step in steps if found[step]["wall_time"] == moment]
        rate = jsonl.number(found[steps[0]].get(RATE))
        return moment - (chunk[-1] * len(by_seed) / rate if rate else 0.0)
    return None


def _startup(meta: Meta | None, first: float | None) -> float | None:
    if meta is None or first is None:
        return None
    try:
        created = datetime.datetime.fromisoformat(meta.created).timestamp()
    except ValueError:
        return None
    return first - created if 0 <= first - created < 86_400 else None
