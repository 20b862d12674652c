"""The findings of `hmx score-buffer`: every figure of the report, the gates of `--strict`, and the verdict."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from hmx.errors import ExitCode, HmxError
from hmx.records.plain import JsonValue
from hmx.render.numbers import num
from hmx.render.quantities import number
from hmx.reports.score_buffer.request import ScoreRequest
from hmx.runs.buffers import Host
from hmx.scoring import ScoreOptions
from hmx.stats.ranks import Bin, Correlation

SCHEMA = 3

LEAST_RELIABILITY = 0.8  # from here on the rank correlation with exact scores was at least 0.86 (docs/score-buffer.md)
ROUGH_RELIABILITY = 0.5
MOST_NULL = 0.25  # of the median score
MOST_TIED = 0.95
MOST_TRUNCATED = 0.05

_AGREE, _DIFFER = 0.7, 0.3  # rank correlations above and below which two rankings agree, or differ


def gap_text(gap: float) -> str:
    """Return a difference of returns with its sign."""
    return f"{'+' if gap > 0 else ''}{number(gap)}"


class ContinuationPolicy(NamedTuple):
    """The policy that continues."""

    run: str
    update: int
    agent: int
    kind: str
    parameter: float


class BufferFacts(NamedTuple):
    """The buffer of the positions."""

    size: int
    capacity: int
    added: int
    collected: bool
    run: str
    update: int


class Distribution(NamedTuple):
    """The distribution of the scores."""

    mean: float
    quantiles: Mapping[str, float]
    zero_share: float
    distinct: int
    tied_share: float
    gini: float | None
    top_tenth_share: float | None
    zeros: int
    bins: tuple[Bin, ...]


class MetricSummary(NamedTuple):
    """Scores by another metric, and their rank correlation with the scores."""

    mean: float
    median: float
    zero_share: float
    spearman: float | None


class Noise(NamedTuple):
    """The reliability of the scores."""

    reliability: float | None  # rank correlation of the two halves of the rollouts
    standard_error: float | None  # root mean square over the positions, including the bias
    bias: float  # mean part of uncorrected scores that comes from noise
    null: float  # noise floor: mean distance of the action taken from itself with other random numbers


class RolloutFacts(NamedTuple):
    """The length of the rollouts."""

    horizon: int
    auto: bool
    median_length: float
    p99_length: float
    truncated_share: float
    mean_steps: float


class Baseline(NamedTuple):
    """The gap that needs no rollouts: of action values, or of one step and the value after it."""

    kind: Literal["Q-gap", "value gap"]
    median: float
    correlation: Correlation


class Stakes(NamedTuple):
    """The spread of returns over the actions of a position."""

    largest: float
    middle_share: float | None


class ReplayFacts(NamedTuple):
    """The sampling of a buffer by replay."""

    ess: float
    prob_ratio: float
    is_weight_min: float
    is_weight_max: float
    alpha_td: float
    alpha_c: float


class Coverage(NamedTuple):
    """Share of the buffer with a score, and number of transitions added since the scores."""

    before: float
    after: float
    target: float
    staleness_p50: float | None
    staleness_p90: float | None


class Cost(NamedTuple):
    """Environment steps and time."""

    env_steps: int
    seconds: float
    compile_seconds: float
    steps_per_second: float | None
    most_env_steps: int
    environments_per_position: int
    live_environments: int


@dataclass(frozen=True)
class TriedAction:
    """An action in a position, with its returns and their distance from those of the action taken."""

    action: str
    taken: bool
    mean: float = num("mean of its returns", "reward", column="mean return", show=number)
    std: float = num("standard deviation of its returns", "reward", column="std", show=number)
    distance: float = num("distance of its returns from those of the action taken", column="distance", show=number)


@dataclass(frozen=True, kw_only=True)
class TopPosition:
    """One of the most consequential positions; `times` counts those that look the same with the same action."""

    slot: int = num("place in the buffer", column="slot", show=str)
    birth: int
    times: int = num("positions that look the same with the same action", column="times", rank=2, show=str)
    score: float = num("consequence", column="score")
    td_error: float = num("absolute TD error", column="|TD|", rank=1, show=number)
    taken: str
    best: str  # of the alternatives
    gap: float = num("mean return of `best` minus that of the action taken", column="gap", show=gap_text)
    actions: tuple[TriedAction, ...]  # by mean return, highest first
    state: Mapping[str, JsonValue]  # as the environment describes it, or `observation`


class Point(NamedTuple):
    """A position in plots."""

    score: float
    td_error: float
    proxy: float


class Gate(NamedTuple):
    """A condition of `--strict`; `passed` is None if the value is not known."""

    name: str
    value: float | None
    limit: float
    passed: bool | None
    meaning: str  # of a failure

    def __str__(self) -> str:
        value = "unknown" if self.value is None else f"{self.value:.2f}"
        return f"{self.name} {value}, limit {self.limit:g}: {self.meaning}"


@dataclass(frozen=True, kw_only=True)
class ScoreFindings:
    """Everything that `hmx score-buffer` reports; `--json` prints it."""

    schema: int = SCHEMA
    path: str
    env: str
    out: Path
    finding: str = ""
    policy: ContinuationPolicy
    buffer: BufferFacts
    seed: int
    options: ScoreOptions
    request: ScoreRequest
    positions: int
    scores: Distribution
    metrics: Mapping[str, MetricSummary]
    noise: Noise
    rollouts: RolloutFacts
    td: Correlation
    td_fresh: Correlation | None
    proxy: Baseline
    stakes: Stakes
    replay_before: ReplayFacts
    replay_after: ReplayFacts
    coverage: Coverage
    cost: Cost
    top: tuple[TopPosition, ...]
    points: tuple[Point, ...]
    gates: tuple[Gate, ...] = ()
    warnings: tuple[str, ...] = ()
    columns: Mapping[str, Host] = dataclasses.field(default_factory=dict, metadata={"json": False})

    @property
    def failed(self) -> list[Gate]:
        """Return the gates that were not passed."""
        return [gate for gate in self.gates if gate.passed is False]


@dataclass(frozen=True, kw_only=True)
class ScorePlan:
    """The maximum cost of scoring: the answer of `--dry-run`."""

    schema: int = SCHEMA
    path: str
    env: str
    out: Path
    positions: int
    size: int
    actions: int
    rollouts: int
    horizon: int
    is_bound: bool  # whether the horizon is an upper bound
    env_steps: int
    state_bytes: int


def judged(found: ScoreFindings, warnings: tuple[str, ...]) -> ScoreFindings:
    """Return the findings with gates, verdict and warnings."""
    verdict = " ".join(sentences(found))
    return dataclasses.replace(found, finding=verdict, gates=_gates(found), warnings=(*warnings, *_warnings(found)))


def check_gates(found: ScoreFindings) -> None:
    """Refuse scores that fail a gate (exit code 4)."""
    if found.failed:
        lines = [f"  {gate}" for gate in found.failed]
        hint = "more --rollouts make scores less noisy; another --aggregate, or --metric, has fewer ties"
        raise HmxError("\n".join(["the scores do not pass:", *lines]), hint, ExitCode.CHECK_FAILED)


def _gates(found: ScoreFindings) -> tuple[Gate, ...]:
    reliability, median, null = found.noise.reliability, found.scores.quantiles["p50"], found.noise.null
    share = null / median if median > 0.0 else (0.0 if null == 0.0 else None)
    tied, coverage = found.scores.tied_share, found.coverage
    return (
        Gate(
            "reliability", reliability, LEAST_RELIABILITY,
            None if reliability is None else reliability >= LEAST_RELIABILITY,
            "the two halves of the rollouts rank the positions differently",
        ),
        Gate(
            "null", share, MOST_NULL, share is not None and share <= MOST_NULL,
            "with other random numbers the action taken is nearly as far from itself as from its alternatives",
        ),
        Gate("ties", tied, MOST_TIED, tied <= MOST_TIED, "nearly every score occurs more than once"),
        Gate(
            "coverage", coverage.after, coverage.target, coverage.after >= coverage.target,
            "fewer transitions than required have a score",
        ),
    )  # fmt: skip


def sentences(found: ScoreFindings) -> Iterator[str]:
    """Yield the verdict, the most important sentence first."""
    scores, noise = found.scores, found.noise
    if scores.quantiles["p100"] == 0.0:
        yield "No action that was tried makes a difference in these positions."
        return
    yield _trust(noise.reliability)
    zero = f", and {scores.zero_share:.0%} of the positions have none" if scores.zero_share else ""
    yield f"A tenth of the positions has {scores.top_tenth_share:.0%} of all consequence{zero}."
    yield _agreement("TD errors rank", found.td)
    yield _agreement(f"The {found.proxy.kind}, which needs no rollouts, ranks", found.proxy.correlation)
    median = scores.quantiles["p50"]
    if noise.null > MOST_NULL * median:
        yield (
            f"Low scores are noise: with other random numbers the action taken is {noise.null:.2g} from itself, "
            f"and the median score is {median:.2g}."
        )
    if found.rollouts.truncated_share > MOST_TRUNCATED:
        yield f"{found.rollouts.truncated_share:.0%} of the rollouts were truncated by the horizon."


def _trust(reliability: float | None) -> str:
    if reliability is None:
        return "The reliability of the ranking is unknown."
    shown = f"reliability {reliability:.2f}"
    if reliability >= LEAST_RELIABILITY:
        return f"The ranking of the positions can be trusted ({shown})."
    if reliability >= ROUGH_RELIABILITY:
        return f"The ranking of the positions is rough ({shown}, below {LEAST_RELIABILITY:g})."
    return f"The ranking of the positions cannot be trusted ({shown})."


def _agreement(who: str, found: Correlation) -> str:
    if found.value is None:
        return f"{who} the positions not at all: all values are equal."
    how = "similarly" if found.value >= _AGREE else "differently" if found.value <= _DIFFER else "somewhat similarly"
    return f"{who} the positions {how} (Spearman {found.value:+.2f})."


def _warnings(found: ScoreFindings) -> Iterator[str]:
    options, share = found.options, found.rollouts.truncated_share
    if options.rollouts < 2:
        yield "one rollout per action does not show how noisy the scores are; use --rollouts 2 or more"
    if share > MOST_TRUNCATED and not options.bootstrap:
        yield (
            f"{share:.0%} of the rollouts were truncated by the horizon, and later rewards count as 0; use --bootstrap "
            "or a longer --horizon"
        )
    if options.metric in ("tv", "js") and found.scores.tied_share > MOST_TIED:
        yield f"{options.metric} saturates if returns rarely tie; w1 does not"
