"""The results of an evaluation for each policy, and the file of the evaluation at the end of a run; needs no JAX."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Protocol

from hmx.config.files import make_folder
from hmx.config.textfile import quoted
from hmx.errors import HmxError
from hmx.records.artefact import REPORT_SCHEMA, read_json, write_sealed
from hmx.records.paths import EVALUATION, RunPaths
from hmx.records.plain import JsonResult, JsonValue, ShortRepr, plain, typed
from hmx.stats.intervals import Interval


class Progress(Protocol):
    """A callback that reports progress."""

    def __call__(self, phase: str, done: int, total: int, /, rate: float = 0.0) -> None:
        """Take the current task, its progress, and the steps per second; 0 for an unknown rate."""


def no_progress(phase: str, done: int, total: int, rate: float = 0.0) -> None:
    """Ignore progress."""


RANDOM = "random"
"""The policy that others are compared with."""


@dataclass(frozen=True, kw_only=True)
class PolicyStats:
    """One policy over `episodes` whole episodes. Intervals are 95 % intervals; unknown values are None."""

    policy: str
    seed: int | None = None  # of the trained agent; None for the random policy
    episodes: int = 0
    unfinished: int = 0  # episodes without a step limit that were abandoned
    return_mean: float
    return_interval: Interval | None = None  # bootstrap of the mean: one win can be worth hundreds
    return_median: float | None = None
    reward_terms: dict[str, float] = field(default_factory=dict)  # mean per episode; they add up to `return_mean`
    length_mean: float | None = None
    length_interval: Interval | None = None
    stage_mean: float | None = None
    stage_median: float | None = None
    stage_max: int | None = None
    stage_counts: dict[int, int] = field(default_factory=dict)  # highest stage -> episodes
    wins: int | None = None  # episodes won
    win_rate_interval: Interval | None = None
    stages_completed: float | None = None  # per episode
    undo_stages: float | None = None  # per episode, the part completed on a board that UNDO brought back
    wins_without_undo: int | None = None  # episodes won without such a stage
    info: dict[str, float] = field(default_factory=dict)  # all values that the environment reports, mean per episode


@dataclass(frozen=True, kw_only=True, repr=False)
class EvaluateResult(JsonResult, ShortRepr):
    """The result of `hmx evaluate`."""

    run: Path | None  # None without a trained agent
    env: str
    checkpoint: int | None  # the update that was evaluated
    env_steps: int | None
    episodes: int
    seed: int
    policies: tuple[PolicyStats, ...]
    search: int | None = None  # simulations per decision of the policy `search`
    sees: str | None = None  # what that search starts from, where the environment hides something: see `gumbel.sees`
    changes: dict[str, object] = field(default_factory=dict)  # dotted key -> value in place of the run's or the default
    trained_with: dict[str, float] = field(default_factory=dict)  # key -> reward weight, where returns count another
    warnings: tuple[str, ...] = ()


def write_evaluation(paths: RunPaths, run_id: str, rows: list[PolicyStats]) -> None:
    """Write the evaluation at the end of a run; raise the OSError if that fails."""
    make_folder(paths.reports)
    data = {"schema": REPORT_SCHEMA, "run_id": run_id, "policies": plain(rows)}
    write_sealed(paths.reports / EVALUATION, data)


def read_evaluation(paths: RunPaths) -> tuple[tuple[PolicyStats, ...], tuple[str, ...]]:
    """Return the evaluation at the end of a run, and its problem; a run without one has no rows."""
    path = paths.reports / EVALUATION
    try:
        rows = read_json(path, REPORT_SCHEMA, "", "")["policies"] if path.exists() else []
        return tuple(_row(row) for row in rows), ()
    except HmxError as problem:
        return (), (f"cannot read its evaluation: {quoted(' '.join(problem.message.split()), 300)}",)
    except (TypeError, KeyError, AttributeError):
        return (), ("cannot read its evaluation: not a report",)


def _row(row: dict[str, JsonValue]) -> PolicyStats:
    kept = {part.name: row[part.name] for part in fields(PolicyStats) if part.name in row}
    return typed(PolicyStats, kept, {Interval: _interval})


def _interval(value: object) -> Interval:
    """Return an interval; older files have a list."""
    return typed(Interval, dict(zip(Interval._fields, value, strict=False)) if isinstance(value, list) else value)
