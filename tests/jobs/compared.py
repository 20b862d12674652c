"""What the tests of comparisons share."""

from __future__ import annotations

from hmx.reports.compare.job import compare as job


def compare(*sides, **more):
    """The job, away from any folder of runs."""
    return job([str(side) for side in sides], root="no-such-folder", **more)


def said(result, level=None):
    """All notices of a level as one text."""
    return "\n".join(n.words for n in result.notices if level in (None, n.level))


def keys(result):
    """Key -> values of all differences."""
    return {row.key: row.values for group in result.config for row in group.differences}
