"""`hmx compare`: how runs differ, and which is better; their speed, memory and diagnostics."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from hmx.config.textfile import quoted
from hmx.errors import HmxError, counted, nearest
from hmx.jobs.evaluation import RANDOM
from hmx.records.metrics_table import METRICS
from hmx.reports.compare import conditions
from hmx.reports.compare.differences import differences
from hmx.reports.compare.findings import CompareFindings, Diagnostic, Speed, TaskFindings
from hmx.reports.compare.losses import losses
from hmx.reports.compare.notices import describe, notices, with_tasks
from hmx.reports.compare.numbers import figures_of, values_of
from hmx.reports.compare.read import read_side
from hmx.reports.compare.request import EVALUATION, CompareRequest
from hmx.reports.compare.sides import Member, Side, choose
from hmx.reports.compare.tasks import Groups, measure, overall
from hmx.reports.curves import AgentMetrics
from hmx.reports.doctor.rules import ratio_evidence
from hmx.stats.intervals import LEVEL

DIAGNOSTICS = (
    "train/entropy", "train/max_entropy", "train/std", "train/approx_kl", "train/clip_frac", "train/explained_variance",
    "train/grad_norm", "train/first_ratio_error", "train/value_loss", "train/policy_loss", "train/truncated_frac",
    "train/mean_episode_length",
)  # fmt: skip
MOMENTS = (0.1, 0.5, 1.0)  # shares of the compared steps at which diagnostics are taken

_RATIO = "train/first_ratio_error"


def compare(request: CompareRequest) -> CompareFindings:
    """Compare two or more sides; only reads. Refuses the same input as `choose` and `conditions.parse`."""
    parsed = [conditions.parse(text) for text in request.fail_if]
    names = {request.curve, *DIAGNOSTICS}
    sides, found = with_tasks([read_side(side, names) for side in choose(request.sides, request.root)])
    groups = _groups(sides)
    _check_metric(request, sides)
    _check_tasks(request, list(groups))
    found = [*found, *notices(sides, groups)]
    members = [member for side in sides for member in side.members]
    evaluated = {(m.label, row.seed): row.return_mean for m in members for row in m.trained}
    blocks = {task: [n.text for n in found if n.level == "block" and n.task in ("", task)] for task in groups}
    random = _random(sides)
    tasks = [measure(task, group, evaluated, random, blocks[task], request) for task, group in groups.items()]
    letters = [side.letter for side in sides if side.trained_seeds]
    together = overall(tasks, letters, random, request)
    speeds = _speeds(sides)
    diagnostics = [row for task in tasks for row in _diagnostics(task, groups[task.name])]
    figures = figures_of(values_of(tasks, together, speeds, diagnostics), len(tasks))
    by_name = {side.name: side.letter for side in sides}
    failed = [why for condition in parsed if (why := conditions.check(condition, figures, by_name))]
    return CompareFindings(
        metric=request.metric,
        direction=request.direction,
        level=LEVEL,
        samples=request.samples,
        seed=request.seed,
        sides=tuple(describe(side, sides) for side in sides),
        notices=tuple(found),
        config=tuple(differences(sides)),
        tasks=tuple(tasks),
        overall=together,
        speed=tuple(speeds),
        diagnostics=tuple(diagnostics),
        warnings=tuple(_warnings(groups)),
        losses=losses(sides, request.seed) if request.impl else None,
        figures=figures,
        failed=tuple(failed),
    )


def _groups(sides: Sequence[Side]) -> dict[str, dict[str, list[AgentMetrics]]]:
    """Return the agents that have records by task and letter."""
    groups: dict[str, dict[str, list[AgentMetrics]]] = {}
    for side in sides:
        for seed in side.trained_seeds:
            groups.setdefault(seed.task, {}).setdefault(side.letter, []).append(seed)
    return dict(sorted(groups.items()))


def _check_metric(request: CompareRequest, sides: Sequence[Side]) -> None:
    """Refuse a metric that no run reports, unless there are no runs."""
    runs = [seed for side in sides for seed in side.trained_seeds]
    if request.metric == EVALUATION or not runs or any(request.curve in seed.columns for seed in runs):
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
            known = ", ".join(tasks)
            near = nearest(name, tasks) or tasks[0]
            words = f"{option} {quoted(name)}: no run is of that environment; there are runs of {known}"
            raise HmxError(words, f"name one of these, such as {option} {near}=...")
    for name, low, high in request.ranges:
        if (high > low) != request.up:
            message = f"--range {name}={low:g}:{high:g}: expected the better value last"
            raise HmxError(message, f"--range {name}={high:g}:{low:g}")


def _random(sides: Sequence[Side]) -> dict[str, float]:
    """Return the mean return of random play by task, over all evaluations that have one."""
    returns: dict[str, list[float]] = {}
    for member in (member for side in sides for member in side.members if member.task):
        for row in member.evaluation:
            if row.policy == RANDOM:
                returns.setdefault(member.task, []).append(row.return_mean)
    return {task: math.fsum(values) / len(values) for task, values in returns.items()}


def _speeds(sides: Sequence[Side]) -> list[Speed]:
    rows = []
    for task in sorted({seed.task for side in sides for seed in side.seeds}):
        for side in sides:
            members = [m for m in side.members if any(seed.task == task and len(seed.steps) for seed in m.seeds)]
            if members:
                rows.append(_speed(side.letter, task, members))
    return rows


def _speed(letter: str, task: str, members: Sequence[Member]) -> Speed:
    steps = [sum(seed.end for seed in member.seeds) for member in members]
    seconds = [max(float(seed.time[-1]) for seed in member.seeds if len(seed.steps)) for member in members]
    updates = [max(seed.update for seed in member.seeds) for member in members]
    memory = [member.meta.memory_bytes for member in members if member.meta is not None]
    return Speed(
        letter=letter,
        task=task,
        device=" or ".join(sorted({member.meta.device for member in members if member.meta is not None})),
        steps_per_sec=_median([s / t if t > 0 else np.nan for s, t in zip(steps, seconds, strict=True)]),
        updates_per_sec=_median([u / t if t > 0 else np.nan for u, t in zip(updates, seconds, strict=True)]),
        seconds=_median(seconds),
        startup=_median([member.startup for member in members if member.startup is not None]),
        memory=max(memory, default=0) or None,
    )


def _median(values: Sequence[float]) -> float | None:
    known = [value for value in values if np.isfinite(value)]
    return float(np.median(known)) if known else None


def _diagnostics(task: TaskFindings, groups: Groups) -> Iterator[Diagnostic]:
    """Yield each metric that any side reports, averaged over the tenth of the steps before each of `MOMENTS`."""
    for name in DIAGNOSTICS:
        values = {
            letter: tuple(_mean(group, name, share * task.end, task.end) for share in MOMENTS)
            for letter, group in groups.items()
        }
        if any(value is not None for row in values.values() for value in row):
            yield Diagnostic(task.name, name, MOMENTS, values)


def _mean(seeds: Sequence[AgentMetrics], name: str, at: float, end: float) -> float | None:
    values = [seed.curve(name).around(at, 0.1 * end) for seed in seeds]
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _warnings(groups: Mapping[str, Groups]) -> Iterator[str]:
    for task, by_letter in groups.items():
        for letter, group in by_letter.items():
            worst = max((seed.curve(_RATIO).within().values.max(initial=0.0) for seed in group), default=0.0)
            if evidence := ratio_evidence(float(worst)):
                yield f"{letter} on {task}: {evidence}; acting and learning do not use the same policy"
            broken = sum(bool(np.isnan(column).any()) for seed in group for column in seed.columns.values())
            if broken:
                yield f"{letter} on {task}: values that are not finite in {counted(broken, 'metric')} of its seeds"
