"""Every number of a comparison, declared once: its name, value, unit, better direction, meaning, and column.

The names of `--fail-if`, `figures` in `--json`, the rows of `--csv`, the columns of the text and the table in
docs/compare.md derive from these declarations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from hmx.records.metrics_table import Direction
from hmx.render.blocks import Table, exact_table
from hmx.render.quantities import UNKNOWN, data_size, duration, interval, number, plus_minus
from hmx.reports.compare.findings import (
    Aggregates,
    CompareFindings,
    Diagnostic,
    Overall,
    Pair,
    SideScores,
    Speed,
    TaskFindings,
    ThresholdTimes,
)
from hmx.stats.estimate import Estimate

R = TypeVar("R")
Result = Estimate | float | None


def estimate(found: Estimate | None, sign: bool = False) -> str:
    """Return an estimate as text."""
    return UNKNOWN if found is None else interval(*found, sign=sign)


def probability(found: Estimate | None) -> str:
    """Return a probability over pairs of runs as text; one without an interval is the same for every pair."""
    if found is not None and found.low == found.high and found.low is not None:
        return f"{number(found.value, 4)} (in every pair)"
    return estimate(found)


@dataclass(frozen=True)
class Number(Generic[R]):
    """A number of a record `R`; one with an interval also has the names `NAME_low` and `NAME_high`."""

    name: str
    value: Callable[[R], Result]
    unit: str
    better: Direction  # "none" also where it depends on the metric
    doc: str
    column: str = ""  # its heading in the text; "" for a number that no column shows
    show: Callable[[R], str] | None = None  # its cell; None shows an estimate or four digits
    rank: int = 0  # of the column: where there is no room, the highest is left out first

    def text(self, record: R) -> str:
        """Return the cell of the column."""
        if self.show is not None:
            return self.show(record)
        value = self.value(record)
        return estimate(value) if isinstance(value, Estimate) else number(value, 4)


def _seeds(side: SideScores) -> str:
    missing = sum(seed.value is None for seed in side.seeds)
    return f"{len(side.seeds)}" + (f", {missing} without a value" if missing else "")


SIDE: tuple[Number[SideScores], ...] = (
    Number("seeds", lambda side: float(len(side.seeds)), "seeds", "none", "seeds of the side", "seeds", _seeds),
    Number("steps", lambda side: float(side.end), "steps", "none", "environment steps of its shortest seed"),
    Number("final", lambda side: side.mean, "metric", "none", "mean of the final values of its seeds"),
    Number(
        "std", lambda side: side.std, "metric", "none", "standard deviation of the final values",
        "mean ± std", lambda side: plus_minus(side.mean, side.std), rank=2,
    ),
    Number("iqm", lambda side: side.iqm, "metric", "none", "interquartile mean of the final values", "final, IQM"),
    Number(
        "auc", lambda side: side.area, "metric", "none",
        "interquartile mean of the area under the curve, divided by the steps", "area under the curve",
    ),
    Number(
        "evaluated", lambda side: side.evaluated, "return", "up",
        "interquartile mean of the evaluations at the end of the runs", "evaluation, IQM", rank=1,
    ),
)  # fmt: skip
"""Of a side on an environment, such as `iqm(A)`."""

THRESHOLD: tuple[Number[ThresholdTimes], ...] = (
    Number("reached", lambda row: row.reached / row.of, "share", "up", "share of the seeds that reach the threshold"),
    Number("steps_to", lambda row: row.steps, "steps", "down", "median of the steps until then"),
    Number("seconds_to", lambda row: row.seconds, "seconds", "down", "median of the training time until then"),
)
"""Of a side and a threshold of the report, such as `reached(A, 0.8)`."""

_WINS = Number[Pair](
    "P", lambda pair: pair.improvement, "probability", "up", "probability that a run of A is better", "P(first better)",
    lambda pair: probability(pair.improvement),
)  # fmt: skip
_TESTS: tuple[Number[Pair], ...] = (
    Number("p_value", lambda pair: pair.p_value, "", "none", "p-value of the permutation test", "p-value",
           lambda pair: number(pair.p_value, 2)),
    Number("better", lambda pair: float(pair.verdict.better == pair.a), "", "up",
           "1 if the verdict is that A is better, else 0"),
)  # fmt: skip
PAIR: tuple[Number[Pair], ...] = (
    _WINS,
    Number("difference", lambda pair: pair.difference, "metric", "none", "difference of the IQMs, A less B",
           "difference of IQMs", lambda pair: estimate(pair.difference, sign=True)),
    Number("paired", lambda pair: pair.paired, "metric", "none", "mean difference of the seeds that both sides have",
           "same seeds", lambda pair: f"{estimate(pair.paired, sign=True)} ({pair.shared})", rank=1),
    Number("area_difference", lambda pair: pair.area_difference, "metric", "none",
           "difference of the IQMs of the areas under the curves, A less B", "difference of areas",
           lambda pair: estimate(pair.area_difference, sign=True), rank=2),
    *_TESTS,
)  # fmt: skip
"""Of two sides on an environment, such as `P(A>B)` and `difference(A, B)`."""

OVERALL_PAIR: tuple[Number[Pair], ...] = (
    _WINS,
    Number("score_difference", lambda pair: pair.difference, "score", "up", "difference of the IQMs, A less B",
           "difference of IQMs", lambda pair: estimate(pair.difference, sign=True)),
    *_TESTS,
)  # fmt: skip
"""Of two sides over all environments."""

SPEED: tuple[Number[Speed], ...] = (
    Number(
        "speed", lambda row: row.steps_per_sec, "steps per second", "up",
        "environment steps of all seeds per second, without compilation, saving and evaluation", "steps/s",
    ),
    Number("updates_per_sec", lambda row: row.updates_per_sec, "updates per second", "up", "the same in updates",
           "updates/s", rank=1),
    Number("seconds", lambda row: row.seconds, "seconds", "down", "training time of a run", "training time",
           lambda row: duration(row.seconds)),
    Number("startup", lambda row: row.startup, "seconds", "down", "time until the first update, mostly compilation",
           "to first update", lambda row: duration(row.startup)),
    Number("memory", lambda row: row.memory, "bytes", "down", "memory of the compiled updates on a device",
           "memory", lambda row: UNKNOWN if row.memory is None else data_size(row.memory), rank=2),
)  # fmt: skip
"""Of a side on an environment: medians over its runs."""

AGGREGATE: tuple[Number[Aggregates], ...] = (
    Number("score", lambda side: side.iqm, "score", "up", "interquartile mean of the scores", "IQM"),
    Number("median", lambda side: side.median, "score", "up", "median over environments", "median of tasks", rank=1),
    Number("mean", lambda side: side.mean, "score", "up", "mean over environments", "mean"),
    Number("gap", lambda side: side.gap, "score", "down", "optimality gap: how far scores stay below 1",
           "optimality gap"),
)  # fmt: skip
"""Of a side over all environments."""

_ABOVE = Number[float]("above", lambda share: share, "share", "up", "share of the runs whose score is above 0.5")

TABLE: tuple[tuple[str, str, tuple[Number[Any], ...]], ...] = (
    ("A", "one", SIDE),
    ("A, 0.8", "one", THRESHOLD),
    ("A", "one", SPEED),
    ("A, B", "one", PAIR),
    ("A, B", "all", OVERALL_PAIR),
    ("A", "all", AGGREGATE),
    ("A, 0.5", "all", (_ABOVE,)),
)
"""All numbers with their arguments in `--fail-if`, and whether they are of one environment or of all together."""


class Value(NamedTuple):
    """One value with its interval, or a text; `task` is "" over all tasks.

    `at` is a threshold, a share of the steps, or the number of a documented difference.
    """

    task: str
    side: str
    other: str
    figure: str
    at: str
    value: float | None
    low: float | None = None
    high: float | None = None
    text: str = ""

    @property
    def named(self) -> Iterator[tuple[str, float | None]]:
        """Yield the figures with their names, such as `iqm(A, corridor)`."""
        sides = f"{self.side}>{self.other}" if self.figure == "P" else ", ".join(filter(None, (self.side, self.other)))
        arguments = ", ".join(filter(None, (sides, self.at, self.task)))
        for end, value in (("", self.value), ("_low", self.low), ("_high", self.high)):
            yield f"{self.figure}{end}({arguments})", value


def _values(
    numbers: Sequence[Number[R]], record: R, task: str, side: str, other: str = "", at: str = ""
) -> Iterator[Value]:
    for one in numbers:
        value = one.value(record)
        yield Value(task, side, other, one.name, at, *(value if isinstance(value, Estimate) else (value,)))


def _views(pairs: Sequence[Pair]) -> Iterator[Pair]:
    """Yield each pair from the point of view of either side."""
    for pair in pairs:
        yield from (pair, pair.turned())


def values_of(
    tasks: Sequence[TaskFindings], overall: Overall, speeds: Sequence[Speed], diagnostics: Sequence[Diagnostic]
) -> Iterator[Value]:
    """Yield every value except those of single seeds."""
    for task in tasks:
        for side in task.sides:
            yield from _values(SIDE, side, task.name, side.letter)
            for row in side.thresholds:
                yield from _values(THRESHOLD, row, task.name, side.letter, at=f"{row.value:g}")
        for view in _views(task.pairs):
            yield from _values(PAIR, view, task.name, view.a, view.b)
    for speed in speeds:
        yield from _values(SPEED, speed, speed.task, speed.letter)
    for diagnostic in diagnostics:
        name = diagnostic.metric.rpartition("/")[2]
        for letter, means in diagnostic.values.items():
            for share, mean in zip(diagnostic.moments, means, strict=True):
                yield Value(diagnostic.task, letter, "", name, f"{share:.0%}" if share < 1 else "", mean)
    for scores in overall.sides:
        yield from _values(AGGREGATE, scores, "", scores.letter)
        for tau, above in zip(overall.taus, scores.profile, strict=True):
            yield from _values((_ABOVE,), above, "", scores.letter, at=f"{tau:g}")
    for view in _views(overall.pairs):
        yield from _values(OVERALL_PAIR, view, "", view.a, view.b)


def figures_of(values: Iterator[Value], tasks: int) -> dict[str, float | None]:
    """Return all values by name; with a single task its name may be omitted."""
    figures: dict[str, float | None] = {}
    for value in values:
        figures |= value.named
        if tasks == 1 and value.task:
            figures |= value._replace(task="").named
    return figures


def table(findings: CompareFindings) -> Table:
    """Build the table of all values and of the ratings of differences, for CSV; unknown values are empty."""
    seeds = [
        Value(task.name, side.letter, f"{seed.run} seed {'' if seed.seed is None else seed.seed}".strip(), "seed", "",
              seed.value)
        for task in findings.tasks for side in task.sides for seed in side.seeds
    ]  # fmt: skip
    values = values_of(findings.tasks, findings.overall, findings.speed, findings.diagnostics)
    ratings = [
        Value("", "", "", name, group.row, None, text=text)
        for group in findings.config if group.impact
        for name, text in (("impact", group.impact), ("confidence", group.confidence))
    ]  # fmt: skip
    return exact_table(Value._fields, ((row.task or "all", *row[1:]) for row in (*seeds, *values, *ratings)))
