"""What the tests of comparisons share."""

from __future__ import annotations

from pathlib import Path

from hmx.records.plain import plain_object
from hmx.reports.compare.job import compare as job
from hmx.reports.compare.request import CompareRequest


def compare(*sides, **options):
    """Run the job without a folder of runs."""
    return job(CompareRequest(sides=tuple(map(str, sides)), root=Path("no-such-folder"), **options))


def as_json(findings):
    """Return what `--json` prints."""
    return plain_object(findings)


def noticed(findings, level=None):
    """Return all notices of a level as one text."""
    return "\n".join(notice.text for notice in findings.notices if level in (None, notice.level))


def keys(findings):
    """Return key -> values of all differences."""
    return {row.key: row.values for group in findings.config for row in group.differences}
