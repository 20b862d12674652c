"""What `hmx compare` reads of each run: its configuration, meta data, evaluation, and curves seed by seed.

Nothing here stops at damage: what cannot be read is left out, and said.
"""

from __future__ import annotations

import dataclasses
import datetime
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hmx.config.load import load
from hmx.config.schema import Config
from hmx.config.textfile import quoted
from hmx.errors import HmxError
from hmx.jobs.runs import state_of
from hmx.records import frozen, jsonl
from hmx.records import meta as metas
from hmx.records.artefact import REPORT_SCHEMA, read_json, words
from hmx.records.layout import EVALUATION, METRICS, RunPaths
from hmx.records.meta import Meta
from hmx.reports.compare.sides import Chosen, Member

Array = NDArray[Any]

RATE = "train/steps_per_sec"
EPISODES = "train/num_episodes"
LARGEST = 1e100  # size of a number that counts as finite: the square of a larger one may not be

_SLOWEST = 1e-9  # steps per second, below which a speed is no speed


@dataclasses.dataclass(frozen=True)
class Series:
    """One metric over a run, at the updates that reported it; what was not finite is NaN."""

    steps: Array
    time: Array
    values: Array
    weights: Array  # episodes that the value is a mean over; 1 where it is no mean of episodes

    def until(self, end: float) -> Series:
        """The part up to `end` steps."""
        keep = self.steps <= end
        return Series(self.steps[keep], self.time[keep], self.values[keep], self.weights[keep])


@dataclasses.dataclass(frozen=True)
class Seed:
    """One agent of a run: its metrics, and where it ended."""

    run: str  # label of the run
    number: int | None
    task: str  # id of the environment; "" where it is not known
    steps: Array  # after each update
    time: Array  # seconds of training up to there, without compilation and saving; NaN where that is not known
    series: Mapping[str, Series]

    @property
    def end(self) -> int:
        """Environment steps of the last update; 0 without any."""
        return int(self.steps[-1]) if len(self.steps) else 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """One run, metrics file or configuration of a side."""

    member: Member
    config: Config | None = None
    meta: Meta | None = None
    state: str = ""
    seeds: tuple[Seed, ...] = ()
    evaluation: tuple[Mapping[str, Any], ...] = ()
    startup: float | None = None  # seconds from making the folder to the first update, most of it compilation
    warnings: tuple[str, ...] = ()

    @property
    def trained(self) -> tuple[Mapping[str, Any], ...]:
        """What was evaluated of the agents that were trained: PPO by sampling, Q-learning greedily."""
        return tuple(row for row in self.evaluation if row["policy"] != "random")


@dataclasses.dataclass(frozen=True)
class Side:
    """What is compared with the other sides."""

    letter: str
    name: str
    sources: tuple[Source, ...]

    @property
    def seeds(self) -> tuple[Seed, ...]:
        """All agents of all runs."""
        return tuple(seed for source in self.sources for seed in source.seeds)

    @property
    def configs(self) -> tuple[Config, ...]:
        """All configurations that are known."""
        return tuple(source.config for source in self.sources if source.config is not None)


def read_side(chosen: Chosen, names: Collection[str]) -> Side:
    """Reads all that a side is made of.

    Args:
        chosen: the side.
        names: the metrics that are wanted.

    Raises:
        HmxError: a configuration that cannot be read where nothing else was asked for, or files of a newer hmx.
    """
    return Side(chosen.letter, chosen.name, tuple(_source(member, names) for member in chosen.members))


def _source(member: Member, names: Collection[str]) -> Source:
    match member.kind:
        case "preset":
            return Source(member=member, config=load(preset=str(member.path), environ={}, check=False).config)
        case "config":
            return Source(member=member, config=load(file=member.path, environ={}, check=False).config)
        case "metrics":
            seeds, warnings, _ = _curves(member.path, member.label, "", names)
            return Source(member=member, seeds=seeds, warnings=warnings)
    paths = _paths(member.path)
    known, warnings_, config = metas.find(paths.meta), [], None
    try:
        config = frozen.read_config(paths)
    except HmxError as problem:
        warnings_.append(f"its configuration is not known: {_one_line(problem)}")
    if known is None:
        warnings_.append("its meta.json cannot be read: versions and device are not known")
    evaluation, warning = _evaluation(paths)
    seeds, more, first = _curves(paths.metrics, member.label, config.env.id if config else "", names)
    return Source(
        member=member,
        config=config,
        meta=known,
        state=state_of(paths, known),
        seeds=seeds,
        evaluation=evaluation,
        startup=_startup(known, first),
        warnings=(*warnings_, *warning, *more),
    )


def _paths(folder: Path) -> RunPaths:
    resolved = folder.resolve()
    return RunPaths(resolved.parent, resolved.name)


def _one_line(problem: HmxError) -> str:
    return quoted(" ".join(problem.message.split()), 300)


def _evaluation(paths: RunPaths) -> tuple[tuple[Mapping[str, Any], ...], list[str]]:
    path = paths.reports / EVALUATION
    if not path.exists():
        return (), []
    try:
        data = read_json(path, REPORT_SCHEMA, f"{path} is missing", "")
        rows = data["policies"]
        fine = [
            {name: row.get(name) for name in ("policy", "seed", "episodes", "return_mean")}
            for row in rows
            if isinstance(row["policy"], str) and number(row["return_mean"]) is not None
            if all(row.get(name) is None or type(row[name]) is int for name in ("seed", "episodes"))
        ]
    except (HmxError, TypeError, KeyError, AttributeError) as problem:
        said = _one_line(problem) if isinstance(problem, HmxError) else "not a report"
        return (), [f"its evaluation cannot be read: {said}"]
    return tuple(fine), []


def number(value: Any) -> float | None:
    """A number as a float; None for anything else, and for what is not finite or larger than `LARGEST`."""
    try:
        return float(value) if type(value) in (int, float) and abs(value) <= LARGEST else None
    except OverflowError:  # a whole number of more than 308 digits
        return None


_Rows = dict[int, dict[str, Any]]  # record by environment steps


def _curves(
    path: Path, label: str, task: str, names: Collection[str]
) -> tuple[tuple[Seed, ...], tuple[str, ...], float | None]:
    """The seeds of a metrics file, what is to be said about it, and the moment training began."""
    wanted = {*names, RATE, EPISODES}
    rows: dict[int | None, _Rows] = {}
    damaged: list[int] = []
    try:
        for line_number, line, record in jsonl.scan(path):
            steps = None if record is None else _steps(record)
            if record is None or steps is None:
                damaged += [line_number] if line.endswith(b"\n") else []
                continue
            seed = record.get("seed")
            kept = {name: record[name] for name in wanted if name in record}
            rows.setdefault(seed if type(seed) is int else None, {})[steps] = {
                **kept, "wall_time": record.get("wall_time"),
            }  # fmt: skip
    except FileNotFoundError:
        return (), (f"it has no {METRICS}",), None
    except OSError as problem:
        return (), (f"its metrics cannot be read: {words(problem)}",), None
    warnings = [*_damage(damaged), *([] if rows else ["it has no records yet"])]
    seeds = [_seed(label, seed, task, found, len(rows)) for seed, found in sorted(rows.items(), key=_order)]
    return tuple(seeds), tuple(warnings), _began(rows)


def _order(item: tuple[int | None, Any]) -> int:
    return -1 if item[0] is None else item[0]


def _damage(lines: Sequence[int]) -> Iterator[str]:
    if lines:
        which = ", ".join(map(str, lines[:5])) + (" and more" if len(lines) > 5 else "")
        yield f"{len(lines)} damaged lines of its metrics are left out: {which}"


def _steps(record: Mapping[str, Any]) -> int | None:
    for key in ("env_steps", "train/env_steps"):
        value = number(record.get(key))
        if value is not None and 0 <= value < 2**53 and value == int(value):
            return int(value)
    return None


def _seed(label: str, seed: int | None, task: str, rows: _Rows, seeds: int) -> Seed:
    steps = np.array(sorted(rows), np.int64)
    records = [rows[step] for step in steps]
    time = _times(steps, records, seeds)
    names = {name for record in records for name in record} - {"wall_time"}
    return Seed(label, seed, task, steps, time, {name: _series(name, steps, time, records) for name in sorted(names)})


def _series(name: str, steps: Array, time: Array, records: Sequence[Mapping[str, Any]]) -> Series:
    there = np.array([name in record for record in records], bool)
    values = np.array([_value(record[name]) for record in records if name in record], np.float64)
    weights = np.ones(len(values))
    if name.endswith(("mean_episode_return", "mean_episode_length")):
        found = [number(record.get(EPISODES)) or 1.0 for record in records if name in record]
        weights = np.maximum(np.array(found, np.float64), 1.0)
    return Series(steps[there], time[there], values, weights)


def _value(value: Any) -> float:
    found = number(value)
    return math.nan if found is None else found


def _times(steps: Array, records: Sequence[Mapping[str, Any]], seeds: int) -> Array:
    """Seconds of training: the rate of a record is that of its chunk, over all seeds, without what lies between."""
    taken = np.diff(steps, prepend=0) * seeds
    rates = np.array([_value(record.get(RATE)) for record in records], np.float64)
    known = rates > _SLOWEST
    seconds = np.where(known, taken / np.where(known, rates, 1.0), np.nan)
    return np.cumsum(seconds)


def _began(rows: Mapping[int | None, _Rows]) -> float | None:
    """The moment the first chunk began."""
    for found in rows.values():
        records = [found[step] for step in sorted(found)]
        moment = number(records[0]["wall_time"])
        if moment is None:
            return None
        # every record of a chunk carries the moment of its end
        chunk = [step for step in sorted(found) if found[step]["wall_time"] == moment]
        rate = number(records[0].get(RATE))
        return moment - (chunk[-1] * len(rows) / rate if rate else 0.0)
    return None


def _startup(known: Meta | None, first: float | None) -> float | None:
    if known is None or first is None:
        return None
    try:
        created = datetime.datetime.fromisoformat(known.created).timestamp()
    except ValueError:
        return None
    return first - created if 0 <= first - created < 86_400 else None
