"""Names of a study's objective and options, the numbers of a trial, and their table for `--csv`."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

from hmx.config.coerce import show
from hmx.records.plain import JsonValue
from hmx.render.blocks import Table, exact_table
from hmx.render.numbers import Number, numbers
from hmx.reports.compare.document import metric_name
from hmx.stats.estimate import Estimate
from hmx.study.records import Objective
from hmx.study.report.findings import StudyFindings, TrialFacts

_STEPS, _CPU_SECONDS = numbers(TrialFacts)
TRIAL = (
    Number("highest rung that it reached", column="rung", name="rung", of=attrgetter("rung")),
    _STEPS,
    Number("objective at that rung", "objective", column="objective", name="objective", of=attrgetter("objective")),
    _CPU_SECONDS,
)
"""Of a trial; the numbers of the best trials and of options are declared in their records."""


def objective_name(objective: Objective) -> str:
    """Return the name of an objective for readers."""
    name = metric_name(objective.metric)
    until = f"until the {name} is {objective.threshold or 0:g}"
    names = {"final": name, "auc": f"mean {name} over training"}
    return names.get(objective.measure, f"{'steps' if objective.measure == 'steps_to' else 'CPU time'} {until}")


def short_names(keys: Iterable[str]) -> dict[str, str]:
    """Return keys without their sections where that is clear."""
    last = {key: key.rpartition(".")[2] for key in keys}
    names = list(last.values())
    return {key: name if names.count(name) == 1 else key for key, name in last.items()}


def table(findings: StudyFindings) -> Table:
    """Build the table of all trials, for CSV; unknown values are empty."""
    keys = [parameter.key for parameter in findings.settings.space]
    names = ["trial", *keys, *(one.name for one in TRIAL), "confirmed", "confirmed_low", "confirmed_high", "failed"]
    confirmed = {one.trial: one.confirmed for one in findings.finalists}
    rows = (
        (
            trial.trial,
            *(_exact(trial.values[key]) for key in keys),
            *(_exact(one.value(trial)) for one in TRIAL),
            *(confirmed.get(trial.trial) or (None, None, None)),
            trial.failed or None,
        )
        for trial in findings.trials
    )
    return exact_table(names, rows)


def _exact(value: JsonValue | Estimate) -> float | int | str | bool | None:
    return value if value is None or isinstance(value, bool | int | float) else show(value)
