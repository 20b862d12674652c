"""Every number of a study's report, declared once: its name, value, unit, better direction, meaning, and column.

The columns of the text and of `--csv`, and the tables in docs/study.md, derive from these declarations.
"""

from __future__ import annotations

from collections.abc import Iterable

from hmx.config.coerce import show
from hmx.records.plain import JsonValue
from hmx.render.blocks import Table, exact_table
from hmx.render.quantities import duration, number
from hmx.reports.compare.document import metric_name
from hmx.reports.compare.numbers import Number, estimate
from hmx.stats.estimate import Estimate
from hmx.study.records import Objective
from hmx.study.report.findings import Finalist, OptionImportance, StudyFindings, TrialFacts

TRIAL: tuple[Number[TrialFacts], ...] = (
    Number("rung", lambda t: t.rung, "", "none", "highest rung that it reached", "rung"),
    Number("env_steps", lambda t: t.env_steps, "steps", "none", "environment steps per seed until then", "steps",
           lambda t: f"{t.env_steps:,}", rank=2),
    Number("objective", lambda t: t.objective, "objective", "none", "objective at that rung", "objective"),
    Number("cpu_seconds", lambda t: t.cpu_seconds, "seconds", "down",
           "CPU time of its training, all seeds together; with compiling, if its worker had no program for it yet",
           "CPU time", lambda t: duration(t.cpu_seconds), rank=1),
)  # fmt: skip
"""Of a trial."""

FINALIST: tuple[Number[Finalist], ...] = (
    Number("tuned", lambda f: f.tuned, "objective", "none", "objective in the search that chose it", "tuned"),
    Number("confirmed", lambda f: f.confirmed, "objective", "none", "objective on fresh seeds", "confirmed"),
    Number("overstated", lambda f: f.overstated, "objective", "none",
           "how much worse it is on fresh seeds than in the search", "overstated by",
           lambda f: estimate(f.overstated, sign=True), rank=1),
    Number("cpu_seconds", lambda f: f.cpu_seconds, "seconds", "down", "CPU time of its training in the search",
           "CPU time", lambda f: duration(f.cpu_seconds), rank=2),
    Number("confirmed_cpu_seconds", lambda f: f.confirmed_cpu_seconds, "seconds", "down",
           "CPU time of its training on fresh seeds", "CPU time, fresh seeds",
           lambda f: duration(f.confirmed_cpu_seconds), rank=3),
)  # fmt: skip
"""Of one of the best trials."""

OPTION: tuple[Number[OptionImportance], ...] = (
    Number("share", lambda o: o.share, "share", "none",
           "share of the variance of the ranks of the results that the option explains alone", "share of the variance"),
    Number("p_value", lambda o: o.p_value, "", "none",
           "probability that the largest share of options without effect is as large", "p-value",
           lambda o: number(o.p_value, 2), rank=1),
)  # fmt: skip
"""Of an option."""


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
