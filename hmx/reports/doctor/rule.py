"""A rule of `hmx doctor`: what it needs, what it looks for, and what it says."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from hmx.reports.doctor.history import History

Severity = Literal["warning", "note"]


@dataclass(frozen=True)
class Rule:
    """A kind of problem that metrics can show."""

    name: str  # for `--fail-on`
    needs: tuple[str, ...]  # metrics, or groups such as `reward/`, without which it is not checked
    check: Callable[[History], str]  # returns the evidence; "" for none
    title: str  # the problem, as a sentence without its full stop
    remedy: str  # advice, as sentences
    patience: float = 0.05  # share of the run for which the evidence must last
    updates: int = 6  # least number of updates for which it must last
    severity: Severity = "warning"  # notes may be intended; they are never shown during training
    instead: tuple[str, ...] = ()  # metrics that suffice in place of `needs`
    configured: bool = False  # whether it also needs the configuration, so that logs of other programs are not checked

    def missing(self, run: History) -> str:
        """Return the metrics or the configuration that the rule lacks; "" if it can be checked."""
        if self.configured and run.config is None:
            return "the configuration"
        if self.instead and all(map(run.has, self.instead)):
            return ""
        return " and ".join(name for name in self.needs if not run.has(name))

    def lasting(self, total: int) -> int:
        """Return the number of updates for which the evidence must last in a run of `total` updates."""
        return max(self.updates, math.ceil(self.patience * total))
