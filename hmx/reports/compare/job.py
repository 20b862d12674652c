"""`hmx compare`: what differs between runs, and which is better if that can be said."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hmx.config.names import nearest
from hmx.config.textfile import quoted
from hmx.errors import HmxError
from hmx.records.jsonl import finite
from hmx.records.layout import DEFAULT_ROOT
from hmx.records.metrics_table import METRICS
from hmx.reports.compare import conditions as compare_expr
from hmx.reports.compare.checks import Notice, describe, notices, tasks_of
from hmx.reports.compare.configs import Group, differences
from hmx.reports.compare.figures import figures
from hmx.reports.compare.impl import compare_impl
from hmx.reports.compare.overall import TAUS, Overall, overall
from hmx.reports.compare.read import Side, number, read_side
from hmx.reports.compare.sides import choose
from hmx.reports.compare.speed import DIAGNOSTICS, MOMENTS, Speed, diagnostics, findings, speeds
from hmx.reports.compare.tasks import EVALUATION, Spec, Task, measure, seeds_by_task
from hmx.stats.aggregates import LEVEL, Estimate

SCHEMA = 1
MAX_SAMPLES = 1_000_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompareResult:
    """Everything that was found, in the order in which it is told."""

    spec: Spec
    sides: tuple[Side, ...]
    notices: tuple[Notice, ...]
    config: tuple[Group, ...]
    tasks: tuple[Task, ...]
    overall: Overall
    speed: tuple[Speed, ...]
    diagnostics: Mapping[str, Mapping[str, Mapping[str, Sequence[float | None]]]]
    findings: tuple[str, ...]
    figures: Mapping[str, float | None]
    impl: Mapping[str, Any] | None = None  # see `hmx.reports.compare.impl`
    failed: tuple[str, ...] = ()  # conditions that hold, or that cannot be decided

    def to_json(self) -> dict[str, Any]:
        """One object with stable keys; what is not known is None."""
        body = {
            "schema": SCHEMA,
            "metric": self.spec.metric,
            "direction": self.spec.direction,
            "level": LEVEL,
            "samples": self.spec.samples,
            "seed": self.spec.seed,
            "sides": [describe(side) for side in self.sides],
            "notices": [dataclasses.asdict(notice) for notice in self.notices],
            "config": [dataclasses.asdict(group) for group in self.config],
            "tasks": [_task(task) for task in self.tasks],
            "overall": {**_fields(self.overall), "taus": list(TAUS)},
            "speed": [_fields(row) for row in self.speed],
            "diagnostics": {"at": list(MOMENTS), "tasks": self.diagnostics},
            "findings": list(self.findings),
            "impl": self.impl,
            "figures": dict(self.figures),
            "failed": list(self.failed),
        }
        plain: dict[str, Any] = finite(body)
        return plain


def compare(
    sides: Sequence[str],
    *,
    spec: Spec | None = None,
    fail_if: Sequence[str] = (),
    impl: bool = False,
    root: str | Path = DEFAULT_ROOT,
) -> CompareResult:
    """Compares two sides or more; only reads.

    Args:
        sides: texts of the form `[NAME=]PATH[,PATH...]`; see `hmx.reports.compare.sides.choose`.
        spec: what is measured.
        fail_if: conditions on the figures; those that hold are in `failed`.
        impl: whether to put one batch through the losses of all sides, which needs JAX.
        root: folder of the runs, for names.

    Raises:
        HmxError: a side or condition that cannot be understood (exit code 2), or a side that is not there (3).
    """
    spec = _checked(spec or Spec())
    conditions = [compare_expr.parse(text) for text in fail_if]
    names = {spec.curve, *DIAGNOSTICS}
    read, found = tasks_of([read_side(side, names) for side in choose(sides, root)])
    seeds = seeds_by_task(read)
    _check_metric(spec, read)
    _check_tasks(spec, list(seeds))
    found = [*found, *notices(read, seeds)]
    evaluated = _evaluated(read)
    tasks = tuple(
        measure(name, groups, evaluated, _blocks(found, name), spec) for name, groups in sorted(seeds.items())
    )
    letters = [side.letter for side in read if any(len(seed.steps) for seed in side.seeds)]
    together = overall(tasks, letters, _random(read), spec)
    speed = tuple(speeds(read))
    seen = {task.name: diagnostics(task, seeds[task.name]) for task in tasks}
    said = tuple(line for task in tasks for line in findings(task.name, seeds[task.name]))
    values = figures(tasks, together, speed, seen)
    by_name = {side.name: side.letter for side in read}
    failed = [why for condition in conditions if (why := compare_expr.check(condition, values, by_name))]
    return CompareResult(
        spec=spec, sides=read, notices=tuple(found), config=tuple(differences(read)), tasks=tasks, overall=together,
        speed=speed, diagnostics=seen, findings=said,
        figures=values, impl=compare_impl(read, spec.seed) if impl else None, failed=tuple(failed),
    )  # fmt: skip


def _checked(spec: Spec) -> Spec:
    if not 1 <= spec.samples <= MAX_SAMPLES:
        raise HmxError(f"cannot draw {spec.samples:,} samples: 1 to {MAX_SAMPLES:,} are possible", "--samples 10_000")
    return spec


def _check_metric(spec: Spec, sides: Sequence[Side]) -> None:
    """A name that no run reports is a slip, unless there are no runs at all."""
    runs = [seed for side in sides for seed in side.seeds if len(seed.steps)]
    if spec.metric == EVALUATION or not runs or any(spec.curve in seed.series for seed in runs):
        return
    if spec.curve in METRICS:
        raise HmxError(
            f"no run reports {spec.curve}", "--metric train/mean_reward, or another that is in metrics.jsonl"
        )
    near = nearest(spec.curve, [*METRICS, EVALUATION])
    hint = (
        f"did you mean --metric {near}?" if near else "docs/metrics.md lists them; `evaluation` is the one at the end"
    )
    raise HmxError(f"no run reports the metric {quoted(spec.curve) or repr('')}", hint)


def _check_tasks(spec: Spec, tasks: Sequence[str]) -> None:
    for option, names in (
        ("--threshold", [n for n, _ in spec.thresholds]),
        ("--range", [n for n, _, _ in spec.ranges]),
    ):
        for name in names:
            if name and tasks and name not in tasks:
                raise HmxError(
                    f"{option} {quoted(name)}: no run is of that environment", f"environments: {', '.join(tasks)}"
                )


def _blocks(found: Sequence[Notice], task: str) -> list[str]:
    return [notice.words for notice in found if notice.level == "block" and notice.task in ("", task)]


def _evaluated(sides: Sequence[Side]) -> dict[tuple[str, int | None], float]:
    """The mean return of the trained policy in the evaluation that ended a run, by run and seed."""
    return {
        (source.member.label, row.get("seed")): value
        for side in sides
        for source in side.sources
        for row in source.trained
        if (value := number(row["return_mean"])) is not None
    }


def _random(sides: Sequence[Side]) -> dict[str, float]:
    """The mean return of random play by task, over all evaluations that have one."""
    found: dict[str, list[float]] = {}
    for source in (source for side in sides for source in side.sources if source.config is not None):
        for row in source.evaluation:
            value = number(row["return_mean"])
            if row["policy"] == "random" and value is not None and source.config is not None:
                found.setdefault(source.config.env.id, []).append(value)
    return {task: math.fsum(values) / len(values) for task, values in found.items()}


def _task(task: Task) -> dict[str, Any]:
    body: dict[str, Any] = _fields(task)
    for side, scores in zip(body["sides"], task.sides, strict=True):
        side["seeds"] = [{"run": run, "seed": number_} for run, number_ in scores.seeds]
        side["finals"] = [found.value for found in scores.finals]
    return body


def _fields(record: Any) -> Any:
    """A record of any depth as dictionaries; an estimate as its value and interval."""
    if isinstance(record, Estimate):
        return {"value": record.value, "low": record.low, "high": record.high}
    if dataclasses.is_dataclass(record):
        return {field.name: _fields(getattr(record, field.name)) for field in dataclasses.fields(record)}
    if isinstance(record, Mapping):
        return {key: _fields(value) for key, value in record.items()}
    if isinstance(record, (list, tuple)):
        return [_fields(value) for value in record]
    return record
