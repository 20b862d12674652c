"""Every value of a comparison by its names: `figures` in `--json`, the rows of `--csv`, `--fail-if`, docs/compare.md.

The records of `findings.py` declare the numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from hmx.render.blocks import Table, exact_table
from hmx.render.numbers import Number, numbers
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

SIDE, THRESHOLD, SPEED, PAIR = numbers(SideScores), numbers(ThresholdTimes), numbers(Speed), numbers(Pair)
OVERALL_PAIR = tuple(
    replace(one, name="score_difference", unit="score", better="up") if one.name == "difference" else one
    for one in PAIR
    if one.name not in ("paired", "area_difference", "share", "times_p_value")
)
ABOVE = (Number("share of the runs whose score is above 0.5", "share", "up", name="above", of=float),)

TABLE: tuple[tuple[str, str, tuple[Number, ...]], ...] = (
    ("A", "one", SIDE),
    ("A, 0.8", "one", THRESHOLD),
    ("A", "one", SPEED),
    ("A, B", "one", PAIR),
    ("A, B", "all", OVERALL_PAIR),
    ("A", "all", numbers(Aggregates)),
    ("A, 0.5", "all", ABOVE),
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
    declared: Sequence[Number], record: object, task: str, side: str, other: str = "", at: str = ""
) -> Iterator[Value]:
    for one in declared:
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
        yield from _values(numbers(Aggregates), scores, "", scores.letter)
        for tau, above in zip(overall.taus, scores.profile, strict=True):
            yield from _values(ABOVE, above, "", scores.letter, at=f"{tau:g}")
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
