"""The options of `hmx gate new`; imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass

from hmx.config.option import opt, same
from hmx.gates.records import DEFAULT_METRIC, GateSettings

PANEL = "Gate"


@dataclass(frozen=True, kw_only=True)
class GateRequest:
    """What a change must improve, and how sure that must be."""

    metric: str = opt(
        DEFAULT_METRIC, "number that a change must improve: return, evaluation (the mean return of --eval-episodes "
        "games), another metric, or a field of the file that a command writes", metavar="METRIC", panel=PANEL,
    )  # fmt: skip
    at: int = opt(
        0, "environment steps of each run, per seed; the metric is its mean in the last tenth (default: --steps)",
        "steps", ge=0, le=2**53, panel=PANEL,
    )  # fmt: skip
    maximize: bool = opt(False, "a higher metric is better (default: as the metric says)", panel=PANEL)
    minimize: bool = opt(False, "a lower metric is better", panel=PANEL)
    max_seeds: int = same(GateSettings, "max_seeds", PANEL)
    error: float = same(GateSettings, "error", PANEL)
    attempts: int = same(GateSettings, "attempts", PANEL)
