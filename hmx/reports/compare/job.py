"""`hmx compare`: how runs differ, and which is better."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hmx.config.textfile import quoted
from hmx.errors import HmxError, nearest
from hmx.jobs.evaluation import RANDOM
from hmx.records.metrics_table import METRICS
from hmx.reports.compare import conditions, speed, values
from hmx.reports.compare.configs import differences
from hmx.reports.compare.findings import CompareFindings
from hmx.reports.compare.losses import losses
from hmx.reports.compare.notices import describe, notices, with_tasks
from hmx.reports.compare.read import Seed, Side, read_side
from hmx.reports.compare.request import EVALUATION, CompareRequest
from hmx.reports.compare.sides import choose
from hmx.reports.compare.tasks import measure, overall
from hmx.stats.intervals import LEVEL


def compare(request: CompareRequest) -> CompareFindings:
    """Compare two or more sides; only reads.

    Raises:
        HmxError: an invalid side or condition (exit code 2), or a side that does not exist (3).
    """
    parsed = [conditions.parse(text) for text in request.fail_if]
    names = {request.curve, *speed.DIAGNOSTICS}
    sides, found = with_tasks([read_side(side, names) for side in choose(request.sides, request.root)])
    groups = _groups(sides)
    _check_metric(request, sides)
    _check_tasks(request, list(groups))
    found = [*found, *notices(sides, groups)]
    evaluated = _evaluated(sides)
    blocks = {task: [n.text for n in found if n.level == "block" and n.task in ("", task)] for task in groups}
    tasks = [measure(task, group, evaluated, blocks[task], request) for task, group in groups.items()]
    letters = [side.letter for side in sides if side.trained_seeds]
    together = overall(tasks, letters, _random(sides), request)
    speeds = speed.speeds(sides)
    diagnostics = [row for task in tasks for row in speed.diagnostics(task, groups[task.name])]
    figures = values.figures(values.values_of(tasks, together, speeds, diagnostics), len(tasks))
    by_name = {side.name: side.letter for side in sides}
    failed = [why for condition in parsed if (why := conditions.check(condition, figures, by_name))]
    return CompareFindings(
        metric=request.metric,
        direction=request.direction,
        level=LEVEL,
        samples=request.samples,
        seed=request.seed,
        sides=tuple(describe(side) for side in sides),
        notices=tuple(found),
        config=tuple(differences(sides)),
        tasks=tuple(tasks),
        overall=together,
        speed=tuple(speeds),
        diagnostics=tuple(diagnostics),
        warnings=tuple(speed.warnings(groups)),
        losses=losses(sides, request.seed) if request.impl else None,
        figures=figures,
        failed=tuple(failed),
    )


def _groups(sides: Sequence[Side]) -> dict[str, dict[str, list[Seed]]]:
    """Return the agents that have records by task and letter."""
    found: dict[str, dict[str, list[Seed]]] = {}
    for side in sides:
        for seed in side.trained_seeds:
            found.setdefault(seed.task, {}).setdefault(side.letter, []).append(seed)
    return dict(sorted(found.items()))


def _check_metric(request: CompareRequest, sides: Sequence[Side]) -> None:
    """Refuse a metric that no run reports, unless there are no runs."""
    runs = [seed for side in sides for seed in side.trained_seeds]
    if request.metric == EVALUATION or not runs or any(request.curve in seed.series for seed in runs):
        return
    if request.curve in METRICS:
        hint = "choose a metric that is in metrics.jsonl, for example --metric train/mean_reward"
        raise HmxError(f"no run reports {request.curve}", hint)
    near = nearest(request.curve, [*METRICS, EVALUATION])
    hint = f"did you mean --metric {near}?" if near else "docs/metrics.md lists all metrics; evaluation is another"
    raise HmxError(f"no run reports the metric {quoted(request.curve) or repr('')}", hint)


def _check_tasks(request: CompareRequest, tasks: Sequence[str]) -> None:
    names = [("--threshold", name) for name, _ in request.thresholds]
    for option, name in [*names, *(("--range", name) for name, _, _ in request.ranges)]:
        if name and tasks and name not in tasks:
            raise HmxError(f"{option} {quoted(name)}: no run is of that environment", f"use {' or '.join(tasks)}")
    for name, low, high in request.ranges:
        if (high > low) != request.up:
            message = f"--range {name}={low:g}:{high:g}: expected the better value last"
            raise HmxError(message, f"--range {name}={high:g}:{low:g}")


def _evaluated(sides: Sequence[Side]) -> dict[tuple[str, int | None], float]:
    """Return the mean return of the trained policy in the evaluation of each run and seed."""
    members = [member for side in sides for member in side.members]
    return {(m.path.label, row.seed): row.return_mean for m in members for row in m.trained}


def _random(sides: Sequence[Side]) -> dict[str, float]:
    """Return the mean return of random play by task, over all evaluations that have one."""
    found: dict[str, list[float]] = {}
    for member in (member for side in sides for member in side.members):
        for row in member.evaluation if member.config is not None else ():
            if row.policy == RANDOM and member.config is not None:
                found.setdefault(member.config.env.id, []).append(row.return_mean)
    return {task: math.fsum(values) / len(values) for task, values in found.items()}
