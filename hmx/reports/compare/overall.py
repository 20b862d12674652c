"""Sides over all tasks that they share: scores on one scale, aggregates, profiles and verdicts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from hmx.reports.compare.read import Array
from hmx.reports.compare.tasks import Pair, Scores, Spec, Task, judge
from hmx.stats import aggregates as agg
from hmx.stats.aggregates import Estimate

TAUS = tuple(round(0.05 * i, 2) for i in range(25))
"""Thresholds of the performance profile, from 0 to 1.2 of the scale."""


@dataclasses.dataclass(frozen=True)
class Range:
    """What counts as 0 and as 1 on a task, and where both come from."""

    low: float
    high: float
    source: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Aggregates:
    """One side over the tasks, on the scale of their ranges."""

    letter: str
    iqm: Estimate
    median: Estimate
    mean: Estimate
    gap: Estimate  # how far below 1 on average
    profile: tuple[float, ...]  # share of runs above each of TAUS


@dataclasses.dataclass(frozen=True, kw_only=True)
class Overall:
    """The tasks that all sides share, together."""

    tasks: tuple[str, ...]
    ranges: Mapping[str, Range]
    sides: tuple[Aggregates, ...]
    pairs: tuple[Pair, ...]
    words: str = ""  # why there is nothing


def overall(tasks: Sequence[Task], letters: Sequence[str], random: Mapping[str, float], spec: Spec) -> Overall:
    """Puts tasks together.

    Args:
        tasks: each on its own.
        letters: the sides that have records.
        random: task -> mean return of random play, where it is known.
        spec: ranges and redraws.
    """
    shared = [t for t in tasks if [s.letter for s in t.sides] == list(letters) and all(s.values for s in t.sides)]
    ranges = {task.name: _range(task, random, spec) for task in shared}
    shared = [task for task in shared if ranges[task.name].low != ranges[task.name].high]
    ranges = {task.name: ranges[task.name] for task in shared}
    if not shared or len(letters) < 2:
        words = "no task on which all sides have values that differ" if len(letters) > 1 else "one side has records"
        return Overall(tasks=(), ranges={}, sides=(), pairs=(), words=words)
    strata = {
        letter: [_scaled(task.sides[i], ranges[task.name]) for task in shared] for i, letter in enumerate(letters)
    }
    sides = tuple(_aggregates(letter, found, spec) for letter, found in strata.items())
    pairs = tuple(
        _pair(shared, i, j, strata[letters[i]], strata[letters[j]], spec)
        for i in range(len(letters))
        for j in range(i + 1, len(letters))
    )
    return Overall(tasks=tuple(task.name for task in shared), ranges=ranges, sides=sides, pairs=pairs)


def _range(task: Task, random: Mapping[str, float], spec: Spec) -> Range:
    for name, low, high in spec.ranges:
        if name == task.name:
            return Range(low, high, "as asked for")
    values = [value for side in task.sides for value in side.values]
    worst, best = (min(values), max(values)) if spec.up else (max(values), min(values))
    if task.name in random and spec.up and random[task.name] < best:
        return Range(random[task.name], best, "0 is random play, 1 the best seed of all sides")
    return Range(worst, best, "0 is the worst and 1 the best seed of all sides")


def _scaled(side: Scores, found: Range) -> Array:
    return (np.array(side.values) - found.low) / (found.high - found.low)


def _aggregates(letter: str, strata: agg.Strata, spec: Spec) -> Aggregates:
    iqm, median, mean, gap = (
        agg.estimate(strata, statistic, spec.samples, spec.seed)
        for statistic in (agg.interquartile_mean, agg.median, agg.mean, agg.optimality_gap)
    )
    profile = tuple(float(share) for share in agg.profile(strata, TAUS))
    return Aggregates(letter=letter, iqm=iqm, median=median, mean=mean, gap=gap, profile=profile)


def _pair(tasks: Sequence[Task], i: int, j: int, first: agg.Strata, second: agg.Strata, spec: Spec) -> Pair:
    both = [*first, *second]
    # On the scale more is better, whatever the metric.
    difference = agg.estimate(both, agg.difference(agg.interquartile_mean), spec.samples, spec.seed)
    blocks = [f"{task.name}: {block}" for task in tasks for block in task.blocks]
    # The verdict is as careful as the task with the fewest seeds asks for.
    chance = agg.chance(first, second, spec.samples, spec.seed)
    scaled = difference if spec.up else _turned(difference)
    judged = [judge(task.sides[i], task.sides[j], scaled, chance, blocks, spec) for task in tasks]
    least = min(range(len(tasks)), key=lambda t: (bool(judged[t][0]), _runs(tasks[t], i, j)))
    better, words = judged[least]
    return Pair(
        a=tasks[0].sides[i].letter, b=tasks[0].sides[j].letter,
        improvement=agg.estimate(both, agg.improvement, spec.samples, spec.seed),
        difference=difference, shared=0, paired=None, chance=chance, better=better, words=words,
    )  # fmt: skip


def _turned(found: Estimate) -> Estimate:
    return Estimate(-found.value, *(None if end is None else -end for end in (found.high, found.low)))


def _runs(task: Task, i: int, j: int) -> int:
    return min(len(task.sides[i].finals), len(task.sides[j].finals))
