"""The findings of `hmx compute-config`; `hmx.records.plain` makes JSON, docs/batch-math.md explains every key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hmx.config.problem import Fixes, Problem
from hmx.registry.derive import Derived
from hmx.reports.compute_config.derived import SizeValue
from hmx.reports.compute_config.fit import ExactFit
from hmx.reports.compute_config.inputs import Scalar
from hmx.reports.compute_config.source import SIZE_KEYS
from hmx.runs.memory_parts import Memory

SCHEMA = 3


def _alternatives(fixes: Fixes) -> list[dict[str, object]]:
    return [{key: value} for key, value in fixes]


def _problems(found: tuple[Problem, ...]) -> list[dict[str, object]]:
    return [{"code": p.code, "message": p.message, "values": p.values, "fixes": _alternatives(p.fixes)} for p in found]


@dataclass(frozen=True)
class ScheduleEnds:
    """A scheduled hyperparameter: its schedule and its values at the start, in the middle and at the end."""

    schedule: str
    start: float
    middle: float
    end: float


@dataclass(frozen=True)
class Horizons:
    """The number of steps that the learner looks ahead.

    1 / (1 - gamma) is the mean lifetime of the discount, 1 / (1 - gamma lambda) that of the advantage trace; None if
    nothing decays.
    """

    gamma: float
    gae_lambda: float
    reward_steps: float | None
    advantage_steps: float | None
    bptt_horizon: int | None


@dataclass(frozen=True)
class RunTime:
    """Time for the run at one speed, and at the useful part of it: steps that are stored."""

    sps: float
    seconds: float
    useful_sps: float
    useful_seconds: float


@dataclass(frozen=True)
class WallClock:
    """Time for all agent steps; `overshoot` is the number of steps collected per step stored."""

    agent_steps: int
    overshoot: float
    at: tuple[RunTime, ...]


@dataclass(frozen=True, kw_only=True)
class SizesFindings:
    """The sizes of one configuration; a value that cannot be computed is None."""

    schema: int = SCHEMA
    valid: bool
    source: str
    trainer: bool  # from a configuration of `hmx train`, whose stricter rules apply
    workers: bool  # whether worker processes step the environments
    input: Mapping[str, Scalar]
    given: tuple[str, ...] = field(metadata={"json": False})  # inputs set by options
    derived: Mapping[str, SizeValue] | None
    train: Derived | None  # sizes of `hmx train`
    errors: tuple[Problem, ...] = field(metadata={"json": _problems})
    warnings: tuple[Problem, ...] = field(metadata={"json": _problems})
    codes: Mapping[str, tuple[str, ...]]  # of `errors` and `warnings`, in the same order
    suggestions: Fixes = field(metadata={"json": _alternatives})
    exact_fit_batch: Mapping[str, ExactFit]
    memory: Memory | None
    gpu_memory_bytes: int | None
    schedules: Mapping[str, ScheduleEnds]
    horizons: Horizons
    wall_clock: WallClock | None
    notes: tuple[str, ...]

    @property
    def only_sizes(self) -> bool:
        """Whether all errors are about sizes, not about other configuration keys."""
        return all(not any("." in key for key in p.values) or SIZE_KEYS.intersection(p.values) for p in self.errors)


@dataclass(frozen=True, kw_only=True)
class SweepFindings:
    """The sizes for each value of one input."""

    schema: int = SCHEMA
    sweep: str
    results: tuple[SizesFindings, ...]
