"""The findings of `hmx bench`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from hmx.records.plain import JsonValue
from hmx.registry.algorithms import PartName
from hmx.stats.estimate import Estimate

SCHEMA = 2
PhaseName = Literal["compile", "simulators", "environment", "acting", "update", "saving", "logging"]


@dataclass(frozen=True)
class Compilation:
    """Compiling a program."""

    seconds: float  # with tracing, and without the persistent cache
    waited: float  # seconds that it took this time
    cached: bool  # whether it came from the cache; `seconds` then is its original compile time


@dataclass(frozen=True)
class Phase:
    """A phase of training that was measured."""

    name: PhaseName
    unit: str  # the work that took `seconds`
    rounds: int  # how often it was measured
    seconds: Estimate
    steps_per_sec: Estimate | None = None  # of environments, over all seeds; None without steps


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
    warnings: tuple[str, ...] = ()

    @property
    def by_name(self) -> dict[PhaseName, Phase]:
        """Return the phases by name."""
        return {phase.name: phase for phase in self.phases}
