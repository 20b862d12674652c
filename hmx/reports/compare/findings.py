"""The findings of `hmx compare` as records; its JSON has the same keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import numpy as np

from hmx.errors import HmxError, counted
from hmx.records.metrics_table import Direction
from hmx.records.plain import JsonValue, ShortRepr, plain
from hmx.render.numbers import num, p_value_text, signed_estimate
from hmx.render.quantities import plus_minus
from hmx.reports.curves import Curve, Over
from hmx.stats.estimate import Estimate
from hmx.stats.intervals import Floats

SCHEMA = 2

Severity = Literal["block", "caution", "note"]
Kind = Literal["run", "metrics", "config", "preset"]
Outcome = Literal["better", "weak evidence", "not distinguishable", "no verdict"]
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


@dataclass(frozen=True)
class SharedStart:
    """The steps that a side shares with another one, from which all its runs were forked."""

    letter: str  # of the other side
    env_steps: int


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
    fork: SharedStart | None = None

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
    impact: str = ""  # of the row, as the publication rates it; "" for all others
    confidence: str = ""  # of that rating


@dataclass(frozen=True, kw_only=True)
class SeedScore:
    """The final value of one seed, or None and the reason."""

    run: str
    seed: int | None
    value: float | None
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class ThresholdTimes:
    """The times at which the seeds of a side reached a value; no median if half of them or more never reached it."""

    value: float
    reached: int = num(
        "share of the seeds that reach the threshold", "share", "up", "reached by", of=lambda row: row.reached / row.of,
        cell=lambda row: f"{row.reached} of {counted(row.of, 'seed')}",
    )  # fmt: skip
    of: int
    steps: float | None = num("median of the steps until then", "steps", "down", "median steps", name="steps_to")
    seconds: float | None = num(
        "median of the training time until then", "seconds", "down", "median time", name="seconds_to"
    )


def _drawn(curves: Mapping[Over, Curve | None]) -> JsonValue:
    """Return the JSON of the curves of a side."""
    return {over: _points(curve, over) if curve is not None else None for over, curve in curves.items()}


def _points(curve: Curve, over: Over) -> JsonValue:
    return plain({"x": curve.x(over), "center": curve.values, "low": curve.low, "high": curve.high})


def _seeds(side: SideScores) -> str:
    missing = sum(seed.value is None for seed in side.seeds)
    return f"{len(side.seeds)}" + (f", {missing} without a value" if missing else "")


@dataclass(frozen=True, kw_only=True)
class SideScores:
    """One side on one task."""

    letter: str
    seeds: tuple[SeedScore, ...] = num(
        "seeds of the side", "seeds", column="seeds", of=lambda side: float(len(side.seeds)), cell=_seeds
    )
    end: int = num("environment steps of its shortest seed", "steps", name="steps", of=lambda side: float(side.end))
    mean: float | None = num("mean of the final values of its seeds", "metric", name="final")
    std: float | None = num(
        "standard deviation of the final values", "metric", column="mean ± std", rank=2,
        cell=lambda side: plus_minus(side.mean, side.std),
    )  # fmt: skip
    iqm: Estimate | None = num("interquartile mean of the final values", "metric", column="final, IQM")
    areas: tuple[float, ...]  # area under the curve of each seed, per step
    area: Estimate | None = num(
        "interquartile mean of the area under the curve, divided by the steps", "metric", name="auc",
        column="area under the curve",
    )  # fmt: skip
    evaluated: Estimate | None = num(
        "interquartile mean of the evaluations at the end of the runs", "return", "up", "evaluation, IQM", rank=1
    )
    thresholds: tuple[ThresholdTimes, ...]
    curves: Mapping[Over, Curve | None] = field(metadata={"json": _drawn})  # interquartile means

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
    improvement: Estimate | None = num(
        "probability that a run of A is better", "probability", "up", "P(first better)", name="P"
    )
    difference: Estimate | None = num(
        "difference of the IQMs, A less B", "metric", column="difference of IQMs", show=signed_estimate
    )
    shared: int = 0  # seeds that both sides have
    paired: Estimate | None = num(
        "mean difference of the seeds that both sides have", "metric", column="same seeds", rank=1, default=None,
        cell=lambda pair: f"{signed_estimate(pair.paired)} ({pair.shared})",
    )  # fmt: skip
    area_difference: Estimate | None = num(
        "difference of the IQMs of the areas under the curves, A less B", "metric", column="difference of areas",
        rank=2, default=None, show=signed_estimate,
    )  # fmt: skip
    faster: str = ""  # letter of the side that learns faster, by its area; "" without evidence
    ends: tuple[float, ...] = ()  # IQMs of `a` and `b`; empty if one is unknown
    range: ScoreRange | None = None  # on which `share` is measured
    share: float | None = num(
        "how much better A ends than B, as a share of the range of the environment", "share", "up", default=None
    )
    times: tuple[ThresholdTimes, ...] = ()  # of `a` and `b`, to a value near the worse end
    times_p_value: float | None = num("p-value of the permutation test of the steps until then", default=None)
    sooner: str = ""  # letter of the side that needs fewer steps; "" without evidence
    p_value: float | None = num("p-value of the permutation test", column="p-value", show=p_value_text)
    verdict: Verdict = num(
        "1 if the verdict is that A is better, else 0", better="up", name="better",
        of=lambda pair: float(pair.verdict.better == pair.a),
    )  # fmt: skip

    def turned(self) -> Pair:
        """Return the pair from the point of view of `b`."""
        return replace(
            self, a=self.b, b=self.a,
            improvement=self.improvement and self.improvement.mirrored(1.0),
            difference=self.difference and self.difference.mirrored(),
            area_difference=self.area_difference and self.area_difference.mirrored(),
            paired=self.paired and self.paired.mirrored(),
            ends=self.ends[::-1], times=self.times[::-1], share=None if self.share is None else -self.share,
        )  # fmt: skip


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
    random: float | None = None  # mean return of random play, if the metric is a return and a run was evaluated


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
    iqm: Estimate = num("interquartile mean of the scores", "score", "up", "IQM", name="score")
    median: Estimate = num("median over environments", "score", "up", "median of tasks", rank=1)
    mean: Estimate = num("mean over environments", "score", "up", "mean")
    gap: Estimate = num("optimality gap: how far scores stay below 1", "score", "down", "optimality gap")
    profile: tuple[float, ...]  # share of runs above each of `TAUS`
    scores: tuple[tuple[float, ...], ...]  # of each run, by task


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
    steps_per_sec: float | None = num(
        "environment steps of all seeds per second, without compilation, saving and evaluation", "steps per second",
        "up", "steps/s", name="speed",
    )  # fmt: skip
    updates_per_sec: float | None = num("the same in updates", "updates per second", "up", "updates/s", rank=1)
    seconds: float | None = num("training time of a run", "seconds", "down", "training time")
    startup: float | None = num("time until the first update, mostly compilation", "seconds", "down", "to first update")
    memory: int | None = num("memory of the compiled updates on a device", "bytes", "down", "memory", rank=2)


@dataclass(frozen=True)
class Diagnostic:
    """A metric of the learner on one task."""

    task: str
    metric: str
    moments: tuple[float, ...]  # shares of the compared steps
    values: Mapping[str, tuple[float | None, ...]]  # letter -> mean over seeds at each moment


class Loss(NamedTuple):
    """The loss of one configuration on the batch; weighted terms add up to the total."""

    weighted: dict[str, float]  # by component
    raw: dict[str, float]  # policy, value and entropy without their weights
    norm: dict[str, float]  # of each component's gradient
    cosine: dict[str, float | None]  # between each component's gradient and that of the first configuration
    advantage: tuple[float, float]  # mean and standard deviation, before normalisation
    target: tuple[float, float]
    correlation: float | None  # between advantages and those of the first configuration
    ratio_error: float  # largest |ratio - 1|
    clip_frac: float


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


@dataclass(frozen=True, kw_only=True, repr=False)
class CompareFindings(ShortRepr):
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

    def label(self, letter: str) -> str:
        """Return letter and name of a side."""
        return next(side.label for side in self.sides if side.letter == letter)

    def score_arrays(self) -> dict[str, Floats]:
        """Return the scores of each side, `[num_runs, num_tasks]`, by its name, as rliable takes them.

        Columns are `overall.tasks`, on the scale of `overall.ranges`; the rows of a column are the runs of that task.

        Raises:
            HmxError: the sides share no task with a scale, or a side has more runs of one task than of another.
        """
        if not self.overall.sides:
            hint = "compare two or more sides, with runs of the same environments"
            raise HmxError(f"cannot make score arrays: {self.overall.why}", hint)
        names, arrays = {side.letter: side.name for side in self.sides}, {}
        for side in self.overall.sides:
            if len({len(scores) for scores in side.scores}) > 1:
                counts = ", ".join(
                    f"{len(x)} of {task}" for task, x in zip(self.overall.tasks, side.scores, strict=True)
                )
                message = f"cannot make score arrays: {self.label(side.letter)} has different numbers of runs: {counts}"
                raise HmxError(message, "train the missing seeds, or compare folders with as many runs of each task")
            arrays[names[side.letter]] = np.array(side.scores).T
        return arrays

    @property
    def word(self) -> str:
        """What a verdict says of a side: better, or higher if the metric has no better direction."""
        return "higher" if self.direction == "none" else "better"
