"""The findings of `hmx compare` as records; its JSON has the same keys. All values as rows for CSV, and by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from hmx.records.metrics_table import Direction
from hmx.render.blocks import Table, exact_table
from hmx.stats.estimate import Estimate

if TYPE_CHECKING:
    from hmx.reports.compare.loss_terms import Loss

SCHEMA = 2

Severity = Literal["block", "caution", "note"]
Kind = Literal["run", "metrics", "config", "preset"]
Outcome = Literal["better", "weak evidence", "not distinguishable", "no verdict"]
Over = Literal["steps", "time"]
OVER: tuple[Over, ...] = ("steps", "time")

TAUS = tuple(round(0.01 * i, 2) for i in range(121))  # thresholds of the performance profile, from 0 to 1.2


@dataclass(frozen=True, kw_only=True)
class MemberFacts:
    """One run, metrics file or configuration of a side."""

    kind: Kind
    path: str
    state: str
    preset: str  # that the run was started with; "" for none
    steps: int  # of the shortest seed
    asked_steps: int | None  # per seed, by the configuration
    seeds: tuple[int | None, ...]
    evaluated_episodes: int | None
    evaluated_policy: str | None


@dataclass(frozen=True, kw_only=True)
class SideFacts:
    """One side: its members, machines and versions."""

    letter: str
    name: str
    members: tuple[MemberFacts, ...]
    tasks: tuple[str, ...]
    seeds: int
    git: tuple[str, ...]  # with a plus for uncommitted changes
    jax: tuple[str, ...]
    hmx: tuple[str, ...]
    device: tuple[str, ...]

    @property
    def label(self) -> str:
        """Letter and name."""
        return self.letter if self.name == self.letter else f"{self.letter} {self.name}"


@dataclass(frozen=True)
class Notice:
    """Something to know before reading on; a block forbids verdicts on `task` ("" for all tasks)."""

    level: Severity
    task: str
    text: str


@dataclass(frozen=True)
class Difference:
    """A key that differs, or a size that follows from several keys."""

    key: str
    values: tuple[str, ...]  # by side, "" without a configuration; joined by " or " if runs of a side disagree
    doc: str


@dataclass(frozen=True)
class DifferenceGroup:
    """Differences that belong together."""

    title: str
    row: str  # number of the documented difference between implementations of PPO; "" for all others
    differences: tuple[Difference, ...]
    effects: tuple[str, ...] = ()  # effect of the row, by side; "" if unknown
    bug: bool = False  # whether a side reproduces a known bug


@dataclass(frozen=True, kw_only=True)
class SeedScore:
    """The final value of one seed, or None and the reason."""

    run: str
    seed: int | None
    value: float | None
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class ThresholdTimes:
    """The times at which the seeds of a side reached a value."""

    value: float
    reached: int
    of: int
    steps: float | None  # medians; None if half of the seeds or more never reached it
    seconds: float | None


@dataclass(frozen=True)
class CurveBand:
    """The interquartile mean of the curves of a side with its interval; no interval for a single run."""

    x: tuple[float, ...]
    center: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SideScores:
    """One side on one task."""

    letter: str
    end: int  # steps of its shortest seed
    seeds: tuple[SeedScore, ...]
    mean: float | None
    std: float | None
    iqm: Estimate | None
    area: Estimate | None  # interquartile mean of the area under the curve, per step
    evaluated: Estimate | None  # interquartile mean of the evaluation at the end of each run
    thresholds: tuple[ThresholdTimes, ...]
    curves: Mapping[Over, CurveBand | None]

    @property
    def values(self) -> list[float]:
        """The known final values."""
        return [seed.value for seed in self.seeds if seed.value is not None]


@dataclass(frozen=True)
class Verdict:
    """Which of two sides is better; `better` is its letter, and "" unless the outcome is `better`."""

    outcome: Outcome
    text: str
    better: str = ""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two sides; differences are those of `a` less `b`."""

    a: str
    b: str
    improvement: Estimate | None  # probability that a run of `a` is better than one of `b`
    difference: Estimate | None  # of the interquartile means
    shared: int = 0  # seeds that both sides have
    paired: Estimate | None = None  # mean difference of these seeds
    p_value: float | None  # of the permutation test of `improvement`
    verdict: Verdict


@dataclass(frozen=True, kw_only=True)
class TaskFindings:
    """All findings on one task."""

    name: str
    end: int  # steps up to which the sides are compared; with `own_end` those of the longest run
    limited_by: str  # the run that ends first, if runs end at different steps
    window: float  # steps whose mean is the final value
    blocks: tuple[str, ...]  # why no verdict is given
    sides: tuple[SideScores, ...]
    pairs: tuple[Pair, ...]


@dataclass(frozen=True)
class ScoreRange:
    """The values of a task that count as 0 and as 1, and their origin."""

    low: float
    high: float
    source: str


@dataclass(frozen=True, kw_only=True)
class Aggregates:
    """One side over all tasks, on the scale of their ranges."""

    letter: str
    iqm: Estimate
    median: Estimate
    mean: Estimate
    gap: Estimate
    profile: tuple[float, ...]  # share of runs above each of `TAUS`


@dataclass(frozen=True, kw_only=True)
class Overall:
    """The tasks that all sides share, on one scale."""

    tasks: tuple[str, ...] = ()
    ranges: Mapping[str, ScoreRange] = field(default_factory=dict)
    taus: tuple[float, ...] = TAUS
    sides: tuple[Aggregates, ...] = ()
    pairs: tuple[Pair, ...] = ()
    why: str = ""  # reason why it is empty


@dataclass(frozen=True, kw_only=True)
class Speed:
    """One side on one task: medians over its runs, None if a value is unknown."""

    letter: str
    task: str
    device: str
    steps_per_sec: float | None  # over all seeds of a run, without compilation, saving and evaluation
    updates_per_sec: float | None
    seconds: float | None  # training time of a run
    startup: float | None  # seconds from the start to the first update, mostly compilation
    memory: int | None  # bytes of the compiled updates on a device; None if no run recorded them


@dataclass(frozen=True)
class Diagnostic:
    """A metric of the learner on one task."""

    task: str
    metric: str
    moments: tuple[float, ...]  # shares of the compared steps
    values: Mapping[str, tuple[float | None, ...]]  # letter -> mean over seeds at each moment


@dataclass(frozen=True, kw_only=True)
class Losses:
    """The losses of every side on one batch."""

    env: str
    network: str  # letter of the side whose network played the batch
    parameters: int
    num_envs: int
    num_steps: int
    truncated_after: int
    truncated_frac: float  # share of the steps
    terminated_frac: float
    gradient_steps: tuple[int, ...]  # of the first side's optimizer
    components: tuple[str, ...]
    sides: Mapping[str, tuple[Loss, ...]]  # letter -> loss after each of `gradient_steps`


@dataclass(frozen=True, kw_only=True)
class CompareFindings:
    """All findings."""

    schema: int = SCHEMA
    metric: str
    direction: Direction
    level: float  # nominal coverage of the intervals
    samples: int
    seed: int
    sides: tuple[SideFacts, ...]
    notices: tuple[Notice, ...]  # the gravest first
    config: tuple[DifferenceGroup, ...]
    tasks: tuple[TaskFindings, ...]
    overall: Overall
    speed: tuple[Speed, ...]
    diagnostics: tuple[Diagnostic, ...]
    warnings: tuple[str, ...]  # findings of the diagnostics
    losses: Losses | None
    figures: Mapping[str, float | None]  # by the names that `--fail-if` knows
    failed: tuple[str, ...]  # conditions that hold or cannot be decided


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
    """Yield every value except those of single seeds."""
    for task in tasks:
        for side in task.sides:
            yield from _of_side(task.name, side)
        yield from (value for pair in task.pairs for value in _of_pair(task.name, pair))
    for row in speeds:
        yield from _values(row.task, row.letter, speed=row.steps_per_sec, updates_per_sec=row.updates_per_sec,
                           seconds=row.seconds, startup=row.startup, memory=row.memory)  # fmt: skip
    for diagnostic in diagnostics:
        name = diagnostic.metric.rpartition("/")[2]
        for letter, means in diagnostic.values.items():
            for share, mean in zip(diagnostic.moments, means, strict=True):
                yield Value(diagnostic.task, letter, "", name, f"{share:.0%}" if share < 1 else "", mean)
    for scores in overall.sides:
        yield from _values("", scores.letter, score=scores.iqm, median=scores.median, mean=scores.mean, gap=scores.gap)
        for tau, above in zip(overall.taus, scores.profile, strict=True):
            yield Value("", scores.letter, "", "above", f"{tau:g}", above)
    yield from (value for pair in overall.pairs for value in _of_pair("", pair))


def figures_of(values: Iterator[Value], tasks: int) -> dict[str, float | None]:
    """Return all values by name; with a single task its name may be omitted."""
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
    yield from _values(task, side.letter, seeds=float(len(side.seeds)), steps=float(side.end), final=side.mean,
                       std=side.std, iqm=side.iqm, auc=side.area, evaluated=side.evaluated)  # fmt: skip
    for row in side.thresholds:
        at, share = f"{row.value:g}", row.reached / row.of
        yield from _values(task, side.letter, at=at, reached=share, steps_to=row.steps, seconds_to=row.seconds)


def _of_pair(task: str, pair: Pair) -> Iterator[Value]:
    """Yield the values of a pair from the point of view of either side."""
    for side, other, turned in ((pair.a, pair.b, False), (pair.b, pair.a, True)):
        wins, difference, paired = (
            estimate.mirrored(total) if turned and estimate is not None else estimate
            for estimate, total in ((pair.improvement, 1.0), (pair.difference, 0.0), (pair.paired, 0.0))
        )
        differences = {"difference": difference, "paired": paired} if task else {"score_difference": difference}
        better = float(pair.verdict.better == side)
        yield from _values(task, side, other, "", P=wins, **differences, p_value=pair.p_value, better=better)


def _values(task: str, side: str, other: str = "", at: str = "", **found: Estimate | float | None) -> Iterator[Value]:
    for figure, value in found.items():
        yield Value(task, side, other, figure, at, *(value if isinstance(value, tuple) else (value,)))
