"""Read each member of a side: its configuration, meta data, evaluation, and curves by seed.

Damage never stops the reading: unreadable parts are skipped and reported.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence, Set
from dataclasses import replace

from hmx.jobs.evaluation import read_evaluation
from hmx.jobs.runs import state_of
from hmx.records import frozen, jsonl
from hmx.records.curves import EPISODES, SPEED, AgentCurves
from hmx.records.logs import is_imported, read_imported
from hmx.records.meta import Meta
from hmx.records.paths import RunPaths
from hmx.registry.load import load, load_stored
from hmx.reports.compare.differences import resolved
from hmx.reports.compare.sides import Member, Side
from hmx.reports.curves import agents_of, read_metrics
from hmx.reports.repeats import marked


def read_side(side: Side, names: Set[str]) -> Side:
    """Read all members of a side; refuse configurations that cannot be read, and files of a newer hmx."""
    members = tuple(_read(member, {*names, SPEED, EPISODES}) for member in side.members)
    seeds = [seed for member in members for seed in member.seeds]
    judged = marked(seeds, seeds)
    return replace(side, members=tuple(replace(m, seeds=tuple(next(judged) for _ in m.seeds)) for m in members))


def _read(member: Member, names: Set[str]) -> Member:
    match member.kind:
        case "preset":
            return resolved(member, load(preset=str(member.path), environ={}, check=False).config)
        case "config":
            return resolved(member, load_stored(member.path).config)
        case "run":
            return _read_run(member, names)
    imported = is_imported(member.path)
    found = read_imported(member.path, names) if imported else read_metrics(member.path, names)
    seeds = agents_of(found, member.label, "", str(member.path.resolve()), 1 if imported else 0)
    return replace(member, seeds=seeds, warnings=found.warnings)


def _read_run(member: Member, names: Set[str]) -> Member:
    folder = member.path.resolve()
    paths = RunPaths(folder.parent, folder.name)
    config, meta, faults = frozen.describe(paths)
    evaluation, unread = read_evaluation(paths)
    found = read_metrics(paths.metrics, names)
    member = member if config is None else resolved(member, config)
    return replace(
        member, meta=meta, state=state_of(paths, meta),
        seeds=agents_of(found, member.label, member.task, str(folder)),
        evaluation=tuple(row for row in evaluation if jsonl.number(row.return_mean) is not None),
        startup=_startup(meta, _began(found.agents)),
        warnings=(*faults, *unread, *found.warnings, *frozen.foreign_files(paths)),
    )  # fmt: skip


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
