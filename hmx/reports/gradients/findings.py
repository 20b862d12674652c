"""What `hmx grad-report` finds: a report per checkpoint, and norms relative to another report."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hmx.analysis.results import GradReport
from hmx.config.textfile import read_text
from hmx.errors import ExitCode, HmxError
from hmx.reports.gradients.request import GradReportRequest

SCHEMA = 2
_MAX_SAVED = 32 << 20  # bytes of a report in JSON: each of a hundred checkpoints has about 100 kB

Norms = Mapping[str, Mapping[str, float]]  # bucket -> component -> norm


@dataclass(frozen=True, kw_only=True)
class CheckpointReport(GradReport):
    """The report of one checkpoint."""

    update: int
    env_steps: int
    hash_before: str  # SHA-256 over all arrays of the state
    hash_after: str
    verdict: str
    warnings: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class NormRatios:
    """Norms of the newest report divided by those of another one."""

    other: str
    norm_ratio: Mapping[str, Mapping[str, float | None]]  # bucket -> component -> ratio


@dataclass(frozen=True, kw_only=True)
class GradFindings:
    """All that `hmx grad-report` prints."""

    schema: int = SCHEMA
    path: Path
    env: str
    seed: int  # of the probe
    request: GradReportRequest
    reports: tuple[CheckpointReport, ...]  # oldest first
    compare: NormRatios | None
    warnings: tuple[str, ...]


def norms(report: GradReport) -> Norms:
    """Return the norms of a report."""
    return {
        bucket.name: {name: component.norm for name, component in bucket.components.items()}
        for bucket in (*report.buckets, report.whole)
    }


def norm_ratios(one: Norms, other: Norms, name: str) -> NormRatios:
    """Divide the norms of one report by those of another, in buckets that both have."""
    ratios = {
        bucket: {c: norm / other[bucket][c] if other[bucket].get(c) else None for c, norm in row.items()}
        for bucket, row in one.items()
        if bucket in other
    }
    return NormRatios(other=name, norm_ratio=ratios)


def read_norms(path: Path) -> Norms:
    """Read the norms of the newest report from a file that `hmx grad-report --json` printed, of any schema.

    Raises:
        HmxError: it is not such a file (exit code 3).
    """
    hint = "give a run, a checkpoint, or a file that `hmx grad-report --json` printed"
    try:
        data = json.loads(read_text(path, _MAX_SAVED))
        if data["schema"] > SCHEMA:
            raise HmxError(f"{path} was written by a newer hmx", "upgrade hmx", ExitCode.ARTEFACT)
        report, is_first = data["reports"][-1], data["schema"] == 1
        rows = (*report["buckets"], report["all" if is_first else "whole"])
        return {
            str(row["name"]): _finite(
                row["norm"] if is_first else {name: part["norm"] for name, part in row["components"].items()}
            )
            for row in rows
        }
    except (OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
        raise HmxError(f"{path} is not a gradient report", hint, ExitCode.ARTEFACT) from None


def _finite(row: Mapping[str, float | None]) -> dict[str, float]:
    """Return the norms of one bucket in a file of unknown origin."""
    found = {str(name): float(norm) for name, norm in row.items() if norm is not None}
    if not found or not all(0.0 <= norm < math.inf for norm in found.values()):
        raise ValueError("norms are finite and not negative")
    return found
