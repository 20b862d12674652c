"""All values of a comparison: as rows for CSV, and as figures by name for `--fail-if`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hmx.reports.blocks import Table, exact_table
from hmx.reports.compare.findings import CompareFindings, Diagnostic, Overall, Pair, SideScores, Speed, TaskFindings
from hmx.stats.estimate import Estimate


class Value(NamedTuple):
    """One value with its interval; `task` is "" over all tasks, and `at` a threshold or a share of the steps."""

    task: str
    side: str
    other: str
    figure: str
    at: str
    value: float | None
    low: float | None = None
    high: float | None = None

    @property
    def named(self) -> Iterator[tuple[str, float | None]]:
        """Yield the figures with their names, such as `iqm(A, corridor)`."""
        sides = f"{self.side}>{self.other}" if self.figure == "P" else ", ".join(filter(None, (self.side, self.other)))
        arguments = ", ".join(filter(None, (sides, self.at, self.task)))
        for end, value in (("", self.value), ("_low", self.low), ("_high", self.high)):
            yield f"{self.figure}{end}({arguments})", value


def values_of(
    tasks: Sequence[TaskFindings], overall: Overall, speeds: Sequence[Speed], diagnostics: Sequence[Diagnostic]
) -> Iterator[Value]:
    """Yield every value but those of single seeds."""
    for task in tasks:
        for side in task.sides:
            yield from _of_side(task.name, side)
        yield from (value for pair in task.pairs for value in _of_pair(task.name, pair))
    for row in speeds:
        for figure, found in (
            ("speed", row.steps_per_sec), ("updates_per_sec", row.updates_per_sec), ("seconds", row.seconds),
            ("startup", row.startup), ("memory", row.memory),
        ):  # fmt: skip
            yield Value(row.task, row.letter, "", figure, "", found)
    for diagnostic in diagnostics:
        name = diagnostic.metric.rpartition("/")[2]
        for letter, means in diagnostic.values.items():
            for share, mean in zip(diagnostic.moments, means, strict=True):
                yield Value(diagnostic.task, letter, "", name, f"{share:.0%}" if share < 1 else "", mean)
    for scores in overall.sides:
        yield from _estimates("", scores.letter, "", score=scores.iqm, median=scores.median, mean=scores.mean,
                              gap=scores.gap)  # fmt: skip
        for tau, above in zip(overall.taus, scores.profile, strict=True):
            yield Value("", scores.letter, "", "above", f"{tau:g}", above)
    yield from (value for pair in overall.pairs for value in _of_pair("", pair))


def figures(values: Iterator[Value], tasks: int) -> dict[str, float | None]:
    """Return all values by name; with a single task its name may be left out."""
    found: dict[str, float | None] = {}
    for value in values:
        found |= value.named
        if tasks == 1 and value.task:
            found |= value._replace(task="").named
    return found


def table(findings: CompareFindings) -> Table:
    """Build the table of all values, for CSV; unknown values are empty."""
    seeds = [
        Value(task.name, side.letter, f"{seed.run} seed {'' if seed.seed is None else seed.seed}".strip(), "seed", "",
              seed.value)
        for task in findings.tasks for side in task.sides for seed in side.seeds
    ]  # fmt: skip
    values = values_of(findings.tasks, findings.overall, findings.speed, findings.diagnostics)
    return exact_table(Value._fields, ((row.task or "all", *row[1:]) for row in (*seeds, *values)))


def _of_side(task: str, side: SideScores) -> Iterator[Value]:
    count = float(len(side.seeds))
    for figure, found in (("seeds", count), ("steps", float(side.end)), ("final", side.mean), ("std", side.std)):
        yield Value(task, side.letter, "", figure, "", found)
    yield from _estimates(task, side.letter, "", iqm=side.iqm, auc=side.area, evaluated=side.evaluated)
    for row in side.thresholds:
        share = row.reached / row.of
        for figure, found in (("reached", share), ("steps_to", row.steps), ("seconds_to", row.seconds)):
            yield Value(task, side.letter, "", figure, f"{row.value:g}", found)


def _of_pair(task: str, pair: Pair) -> Iterator[Value]:
    """Yield the values of a pair from the point of view of either side."""
    for side, other, turned in ((pair.a, pair.b, False), (pair.b, pair.a, True)):
        wins, difference, paired = (
            estimate.mirrored(total) if turned and estimate is not None else estimate
            for estimate, total in ((pair.improvement, 1.0), (pair.difference, 0.0), (pair.paired, 0.0))
        )
        yield from _estimates(task, side, other, P=wins)
        if task:
            yield from _estimates(task, side, other, difference=difference, paired=paired)
        else:
            yield from _estimates(task, side, other, score_difference=difference)
        yield Value(task, side, other, "p_value", "", pair.p_value)
        yield Value(task, side, other, "better", "", float(pair.verdict.better == side))


def _estimates(task: str, side: str, other: str, **found: Estimate | None) -> Iterator[Value]:
    for figure, estimate in found.items():
        yield Value(task, side, other, figure, "", *(estimate or (None,)))
