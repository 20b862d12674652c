"""The findings of `hmx bench`, their JSON for `--compare`, and the comparison of a result with an earlier one."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hmx.config.textfile import quoted
from hmx.errors import ExitCode, HmxError
from hmx.records.artefact import read_json
from hmx.records.plain import JsonValue, typed
from hmx.registry.algorithms import PartName
from hmx.reports.bench.program_work import H100, ProgramWork, Resource, bound
from hmx.stats.estimate import Estimate

SCHEMA = 1
PhaseName = Literal["compile", "simulators", "environment", "acting", "update", "saving", "logging"]
Verdict = Literal["faster", "slower", "no difference seen", "too noisy to tell"]


@dataclass(frozen=True)
class Compilation:
    """Compiling a program."""

    seconds: float  # with tracing, and without the persistent cache
    waited: float  # seconds that it took this time
    cached: bool  # whether it came from the cache; `seconds` then is its original compile time


@dataclass(frozen=True)
class StepWork:
    """The work of a phase, counted in its compiled program, and the speed of an H100 that this bounds."""

    operations: float  # per environment step
    bytes: float  # that kernels read and write, per environment step
    kernels: float  # of a step of all environments, or of an update
    unknown_loops: int  # loops that count once, since the compiler does not know how often they run
    h100_steps_per_sec: float  # of environments, at most
    h100_bound: Resource


@dataclass(frozen=True)
class Phase:
    """A phase of training that was measured."""

    name: PhaseName
    unit: str  # the work that took `seconds`
    rounds: int  # how often it was measured
    seconds: Estimate
    steps_per_sec: Estimate | None = None  # of environments, over all seeds; None without steps
    work: StepWork | None = None  # of one device; None without steps


@dataclass(frozen=True)
class Part:
    """A part of the time of training: seconds per update, and its share of all parts."""

    name: PartName
    seconds: float
    share: float


@dataclass(frozen=True)
class SizeSpeed:
    """Whole updates with another number of environments, measured in turn with those of the configuration.

    `ratio` is its speed over that of the configuration, in steps per second.
    """

    num_envs: int
    steps_per_sec: Estimate
    ratio: Estimate
    memory_bytes: int | None


@dataclass(frozen=True)
class UpdateSpeed:
    """The speed of whole updates."""

    compilation: Compilation
    num_envs: int  # of the configuration
    steps_per_sec: Estimate  # of environments, over all seeds
    sizes: tuple[SizeSpeed, ...]  # other numbers of environments
    not_measured: str  # why others were left out
    suggestion: str  # the conclusion, in a sentence


@dataclass(frozen=True)
class MetricsCost:
    """The time of an update with and without the metrics `reward/`, `actions/` and those of events, in turn."""

    rounds: int
    seconds: Estimate  # of an update; on a CPU processor time, also of workers
    without: Estimate  # of an update without these metrics
    share: Estimate  # of the time of an update that they take, from the pairs of rounds; below 0 only by noise


@dataclass(frozen=True)
class Machine:
    """The conditions that figures depend on, apart from the configuration."""

    device: str
    processor: str
    num_processors: int
    python: str
    versions: Mapping[str, str]


@dataclass(frozen=True)
class PhaseComparison:
    """A phase in two results: `ratio` is the speed now over that before."""

    name: PhaseName
    before: float  # seconds of one unit
    now: float
    ratio: Estimate
    verdict: Verdict
    reason: str


@dataclass(frozen=True)
class Comparison:
    """An earlier result; `differences` are of machine, versions and configuration."""

    file: Path
    differences: tuple[str, ...]
    phases: tuple[PhaseComparison, ...]


@dataclass(frozen=True, kw_only=True)
class BenchFindings:
    """The speed of every phase of training, the bottleneck, and sizes that are faster."""

    schema: int = SCHEMA
    kind: Literal["hmx bench"] = "hmx bench"
    env: str
    algorithm: str
    config: Mapping[str, JsonValue]  # dotted key -> value
    machine: Machine
    seconds: float  # that the benchmark took
    other_programs: float | None  # share of the processors that they used during the benchmark
    phases: tuple[Phase, ...]
    parts: tuple[Part, ...]
    run_seconds: float  # of the run as configured, without compiling and evaluating
    bottleneck: PartName
    verdict: str
    advice: str
    speed: UpdateSpeed
    checkpoint_bytes: int  # on disk
    memory_bytes: int | None  # of the compiled updates, on each device
    free_bytes: int | None
    metrics: MetricsCost | None = None  # None if it was not measured
    comparison: Comparison | None = None
    warnings: tuple[str, ...] = ()

    @property
    def by_name(self) -> dict[PhaseName, Phase]:
        """Return the phases by name."""
        return {phase.name: phase for phase in self.phases}


SMALLEST = 1.05
"""Smallest ratio that counts: the same program is up to 5 % faster or slower in another process."""

UNSEEN = 1.1  # largest ratio that an interval may include if no difference was seen
BUSY = 0.1  # share of the processors that other programs may use in either result
_TINY = 1e-12
_HINT = "write one with: hmx bench --json > before.json"


def read_result(path: Path) -> BenchFindings:
    """Read what `hmx bench --json` printed; refuse anything else, and another schema (exit code 3)."""
    name = quoted(str(path), 100)
    data = read_json(path, sys.maxsize, f"there is no result {name}", _HINT)
    try:
        if data["kind"] == "hmx bench" and type(number := data["schema"]) is int and number != SCHEMA:
            message = f"cannot compare with {name}: it has schema {number}, this hmx reads schema {SCHEMA}"
            raise HmxError(message, _HINT, ExitCode.ARTEFACT)
        return typed(BenchFindings, data)
    except (TypeError, KeyError, ValueError, RecursionError):
        raise HmxError(f"{name} is not a result of hmx bench", _HINT, ExitCode.ARTEFACT) from None


def step_work(work: ProgramWork, steps: int) -> StepWork | None:
    """Divide the work of a program by its environment steps; None if the program could not be read."""
    if work.kernels == 0:
        return None
    limit, seconds = bound(work, H100)
    # The loop over steps or updates has no number of iterations: the program gets it as an argument.
    unknown = max(work.unknown_loops - 1, 0)
    return StepWork(work.operations / steps, work.bytes / steps, work.kernels, unknown, steps / seconds, limit)


def compare(file: Path, before: BenchFindings, now: BenchFindings) -> Comparison:
    """Compare every phase that both results have."""
    on_cpu = "cpu" in (before.machine.device.split()[0].lower(), now.machine.device.split()[0].lower())
    shares = (("the earlier", before.other_programs), ("this", now.other_programs))
    busy = next((
        f"other programs used {share:.0%} of the processors during {which} benchmark"
        for which, share in shares
        if on_cpu and share is not None and share > BUSY
    ), "")  # fmt: skip
    rows = (_compare(before.by_name[row.name], row, busy) for row in now.phases if row.name in before.by_name)
    return Comparison(file, tuple(_differences(before, now)), tuple(rows))


def _compare(before: Phase, now: Phase, busy: str) -> PhaseComparison:
    ratio = _ratio(before, now)
    verdict, reason = judge(ratio)
    if busy:
        verdict, reason = "too noisy to tell", busy
    return PhaseComparison(now.name, before.seconds.value, now.seconds.value, ratio, verdict, reason)


def _ratio(before: Phase, now: Phase) -> Estimate:
    """Return the ratio of speeds; its interval holds all ratios of values in the two intervals."""
    if before.steps_per_sec is not None and now.steps_per_sec is not None:
        top, bottom = now.steps_per_sec, before.steps_per_sec
    else:
        top, bottom = before.seconds, now.seconds
    value = top.value / max(bottom.value, _TINY)
    if top.low is None or top.high is None or bottom.low is None or bottom.high is None:
        return Estimate(value)
    return Estimate(value, top.low / max(bottom.high, _TINY), top.high / max(bottom.low, _TINY))


def judge(ratio: Estimate) -> tuple[Verdict, str]:
    """Return the verdict on a ratio of speeds, or the reason why there is none."""
    value, low, high = ratio
    if low is None or high is None:
        return "too noisy to tell", "measured too few times for an interval"
    if low > 1 and value >= SMALLEST:
        return "faster", ""
    if high < 1 and value <= 1 / SMALLEST:
        return "slower", ""
    if low >= 1 / UNSEEN and high <= UNSEEN:
        return "no difference seen", ""
    return "too noisy to tell", "the interval includes no difference and one of more than 10 %"


def _differences(before: BenchFindings, now: BenchFindings) -> list[str]:
    """Return the differences in machine, versions and configuration, a line each."""
    pairs = {
        "device": (before.machine.device, now.machine.device),
        "processor": (before.machine.processor, now.machine.processor),
        "processors": (before.machine.num_processors, now.machine.num_processors),
        "Python": (before.machine.python, now.machine.python),
    }
    names = {*before.machine.versions, *now.machine.versions}
    pairs |= {name: (before.machine.versions.get(name), now.machine.versions.get(name)) for name in sorted(names)}
    keys = {*before.config, *now.config}
    pairs |= {key: (before.config.get(key), now.config.get(key)) for key in sorted(keys)}
    return [
        f"{name}: {_shown(old)}, now {_shown(new)}" for name, (old, new) in pairs.items() if _shown(old) != _shown(new)
    ]


def _shown(value: object) -> str:
    return "none" if value is None else quoted(str(value), 60) or "''"
