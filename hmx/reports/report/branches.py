"""Forks on a page: from its checkpoint on, a fork is drawn as a branch of the run that it continues."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from hmx.records.curves import RETURN
from hmx.records.layout import find_by_id
from hmx.records.paths import RunPaths
from hmx.reports.curves import agents_of, drawn_agents, mean_curve, read_metrics
from hmx.reports.report.findings import ConfigGroup, RunFacts


def ids(runs: Sequence[RunFacts]) -> set[str]:
    """Return the ids of runs."""
    return {run.meta.run_id for run in runs if run.meta is not None}


def steps(group: Sequence[RunFacts], others: Set[str]) -> float:
    """Return the environment steps at which all runs of a group branch off others, given by id; 0 if any does not."""
    starts = (
        max((mark.env_steps for mark in run.resumes if mark.parent.get("run_id") in others), default=0) for run in group
    )
    return float(min(starts))


def parents(found: Sequence[RunPaths], runs: Sequence[RunFacts]) -> Iterator[ConfigGroup]:
    """Yield the return curve, from the fork on, of each run that was forked into one of `runs` and is not among them.

    It is looked for in the folder of the fork; without it, a page shows the fork only.
    """
    known = ids(runs)
    for paths, run in zip(found, runs, strict=True):
        mark = next((mark for mark in reversed(run.resumes) if mark.parent), None)
        if mark is None or mark.parent.get("run_id") in known:
            continue
        parent = find_by_id(paths.root, mark.parent.get("name", ""), mark.parent.get("run_id", ""))
        if parent is None:
            continue
        known.add(mark.parent["run_id"])
        seeds = drawn_agents(agents_of(read_metrics(parent.metrics)))
        curve = mean_curve(seeds, RETURN)
        if curve is not None and curve.steps[-1] > mark.env_steps:
            yield ConfigGroup(parent.name, (parent.name,), len(seeds), {RETURN: curve}, float(mark.env_steps))
