"""What `hmx bench` finds; `hmx.records.plain` makes JSON of it, and reads it for `--compare`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hmx.records.plain import JsonValue
from hmx.stats.estimate import Estimate

SCHEMA = 1
PhaseName = Literal["compile", "environment", "acting", "update", "saving", "logging"]
PartName = Literal["environment", "network", "learning", "saving", "logging"]
Verdict = Literal["faster", "slower", "no difference seen", "too noisy to tell"]


@dataclass(frozen=True)
class Compilation:
    """Compiling a program."""

    seconds: float  # with tracing, and without the persistent cache
    waited: float  # seconds that it took this time
    cached: bool  # whether it came from the cache; `seconds` then were measured when it was compiled


@dataclass(frozen=True)
class Phase:
    """A phase of training that was measured."""

    name: PhaseName
    unit: str  # what was done once in `seconds`
    rounds: int  # how often it was measured
    seconds: Estimate
    steps_per_sec: Estimate | None = None  # of environments, over all seeds; None where it makes none


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
    suggestion: str  # what follows from them, in a sentence


@dataclass(frozen=True)
class Machine:
    """What figures depend on, apart from the configuration."""

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
    """An earlier result, and what differs; `differences` are of machine, versions and configuration."""

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
    other_programs: float | None  # share of the processors that they used meanwhile
    phases: tuple[Phase, ...]
    parts: tuple[Part, ...]
    run_seconds: float  # of the run as configured, without compiling and evaluating
    bottleneck: PartName
    verdict: str
    advice: str
    speed: UpdateSpeed
    checkpoint_bytes: int  # on disk
    memory_bytes: int | None  # computed, of an update; None where network or algorithm are the user's own
    free_bytes: int | None
    comparison: Comparison | None = None
    warnings: tuple[str, ...] = ()

    @property
    def by_name(self) -> dict[PhaseName, Phase]:
        """Return the phases by name."""
        return {phase.name: phase for phase in self.phases}
