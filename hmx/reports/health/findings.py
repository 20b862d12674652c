"""What `hmx doctor` finds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hmx.errors import counted
from hmx.reports.health.rules import Severity

SCHEMA = 1


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A broken rule."""

    rule: str
    severity: Severity
    title: str
    evidence: str  # the numbers, when the rule was found to be broken
    remedy: str
    since: int  # environment steps at which the evidence began
    found: int  # environment steps at which it had lasted long enough
    until: int | None  # environment steps at which it ended; None while it lasts
    seeds: tuple[int, ...]  # the agents for which the rule is broken


@dataclass(frozen=True)
class RuleStatus:
    """Whether a rule was checked: a rule without its metrics is not measured."""

    rule: str
    status: Literal["ok", "found", "not measured"]


@dataclass(frozen=True, kw_only=True)
class HealthFindings:
    """The result of `hmx doctor`, most severe findings first."""

    schema: int = SCHEMA
    run: Path
    env: str
    state: str
    updates: int
    total_updates: int
    env_steps: int
    num_seeds: int
    findings: tuple[Finding, ...]
    rules: tuple[RuleStatus, ...]
    warnings: tuple[str, ...]  # about reading the files
    failed: tuple[str, ...] = ()  # rules of --fail-on that are broken

    @property
    def verdict(self) -> str:
        """Return the result in one sentence."""
        if not self.updates:
            return "The run has no metrics yet."
        count = sum(finding.severity == "warning" for finding in self.findings)
        checked = sum(rule.status != "not measured" for rule in self.rules)
        found = f"{counted(count, 'problem')} found" if count else "No problem found"
        return f"{found} by {checked} rules in {self.updates:,} of {self.total_updates:,} updates."
