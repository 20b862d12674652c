"""Read each member of a side: its configuration, meta data, evaluation, and curves by seed.

Damage never stops the reading: unreadable parts are skipped and reported.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence, Set
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hmx.config.textfile import quoted
from hmx.jobs.evaluation import read_evaluation
from hmx.jobs.runs import state_of
from hmx.records import frozen, jsonl
from hmx.records.curves import ABSENT, SPEED, AgentCurves, MetricCurves, read_curves
from hmx.records.logs import is_imported, read_imported
from hmx.records.meta import Meta
from hmx.records.paths import RunPaths
from hmx.registry.load import load
from hmx.reports.compare.sides import Member, MetricSeries, Seed, Side
from hmx.reports.repeats import repeats, trace
from hmx.stats.intervals import Floats

EPISODES = "train/num_episodes"

NO_CURVES = MetricCurves(())

_COUNTERS = {"update", "wall_time"}


def read_side(side: Side, names: Set[str]) -> Side:
    """Read all members of a side; refuse configurations that cannot be read, and files of a newer hmx."""
    members, traces = [], []
    for member in side.members:
        read, curves = _read(member, {*names, SPEED, EPISODES})
        members.append(read)
        task = read.config.env.id if read.config else ""
        traces += [trace(agent, str(member.path.resolve()), task) for agent in curves.agents]
    seeds = [seed for member in members for seed in member.seeds]
    same = repeats(traces)
    marked = iter([replace(seed, repeats=seeds[same[i]].who if i in same else "") for i, seed in enumerate(seeds)])
    return replace(side, members=tuple(replace(m, seeds=tuple(next(marked) for _ in m.seeds)) for m in members))


def _read(member: Member, names: Set[str]) -> tuple[Member, MetricCurves]:
    match member.kind:
        case "preset":
            return replace(member, config=load(preset=str(member.path), environ={}, check=False).config), NO_CURVES
        case "config":
            return replace(member, config=load(file=member.path, environ={}, check=False).config), NO_CURVES
        case "run":
            return _read_run(member, names)
    if is_imported(member.path):
        curves = read_imported(member.path, names)
        return replace(member, seeds=_seeds(member.label, "", curves, 1), warnings=curves.warnings), curves
    seeds, curves = read_seeds(member.path, names, member.label)
    return replace(member, seeds=seeds, warnings=curves.warnings), curves


def _read_run(member: Member, names: Set[str]) -> tuple[Member, MetricCurves]:
    folder = member.path.resolve()
    paths = RunPaths(folder.parent, folder.name)
    config, meta, faults = frozen.describe(paths)
    evaluation, unread = read_evaluation(paths)
    seeds, curves = read_seeds(paths.metrics, names, member.label, config.env.id if config else "")
    read = replace(
        member, config=config, meta=meta, state=state_of(paths, meta), seeds=seeds,
        evaluation=tuple(row for row in evaluation if jsonl.number(row.return_mean) is not None),
        startup=_startup(meta, _began(curves.agents)),
        warnings=(*faults, *unread, *curves.warnings, *frozen.foreign_files(paths)),
    )  # fmt: skip
    return read, curves


def read_seeds(
    metrics: Path, names: Set[str], label: str = "", task: str = "", speed: str = SPEED
) -> tuple[tuple[Seed, ...], MetricCurves]:
    """Read the agents of a metrics file with the metrics `names`; also return the file's curves and warnings.

    Times follow from the metric `speed`.

    Raises:
        NewerSchema: a later hmx wrote it (exit code 3).
    """
    curves = read_curves(metrics, {*names, *_COUNTERS, speed, EPISODES})
    return _seeds(label, task, curves, len(curves.agents), speed), curves


def _seeds(label: str, task: str, curves: MetricCurves, side_by_side: int, speed: str = SPEED) -> tuple[Seed, ...]:
    """Return the agents of a file; `side_by_side` agents share the speed that its records give."""
    return tuple(
        _seed(f"{label} {quoted(agent.run)}".strip(), task, agent, agent.seconds(side_by_side, speed))
        for agent in curves.agents
    )


def _seed(label: str, task: str, agent: AgentCurves, seconds: Sequence[float]) -> Seed:
    steps = np.array(agent.steps, np.int64)
    order = np.argsort(steps)
    columns = {name: np.array(column, np.float64)[order] for name, column in agent.columns.items()}
    steps = steps[order]
    time = np.array(seconds)[order]
    episodes = columns.get(EPISODES, np.full(len(steps), ABSENT))
    series = {name: _series(name, steps, time, columns[name], episodes) for name in sorted(columns.keys() - _COUNTERS)}
    return Seed(label, agent.seed, task, steps, time, series, agent.update)


def _series(name: str, steps: NDArray[np.int64], time: Floats, values: Floats, episodes: Floats) -> MetricSeries:
    there = values != ABSENT
    weights = np.ones(len(values))
    if name.endswith(("mean_episode_return", "mean_episode_length")):
        weights = np.where(np.isfinite(episodes), np.maximum(episodes, 1.0), 1.0)
    return MetricSeries(steps[there], time[there], values[there], weights[there])


def _began(agents: Sequence[AgentCurves]) -> float | None:
    """Return the moment the first chunk began; every record of a chunk has the time of its end."""
    if not agents:
        return None
    first = agents[0]
    moments, rates = first.column("wall_time"), first.column(SPEED)
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
