"""What each side reached on one task, how sure that is, and which side is better if that can be said."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hmx.records.metrics_table import METRICS
from hmx.reports.compare.read import Seed, Side
from hmx.reports.compare.scores import Final, Window, area, curve, final, median, reached
from hmx.stats import aggregates as agg
from hmx.stats.aggregates import Estimate

RETURN = "train/mean_episode_return"
EVALUATION = "evaluation"
TENTH = Window()
_CURVE_SAMPLES = 1000
_LIKELY = 0.05  # chance above which a verdict is qualified


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spec:
    """What is measured, and how."""

    metric: str = RETURN  # or EVALUATION: the final value is then that of the evaluation that ended the run
    last: Window = TENTH
    thresholds: tuple[tuple[str, float], ...] = ()  # task, "" for all, and value; none are chosen by the data
    own_end: bool = False  # each run at its own end rather than where the shortest ends
    ranges: tuple[tuple[str, float, float], ...] = ()  # task, what counts as 0, what counts as 1
    samples: int = 10_000
    seed: int = 0

    @property
    def curve(self) -> str:
        """The metric whose curve is used."""
        return RETURN if self.metric == EVALUATION else self.metric

    @property
    def up(self) -> bool:
        """Whether more is better; what has no direction counts as better when it is more."""
        return self.direction != "down"

    @property
    def direction(self) -> str:
        """`up` or `down`, whichever is better; `none` where neither is."""
        info = METRICS.get(self.curve)
        return "none" if info is None else info.direction


@dataclasses.dataclass(frozen=True, kw_only=True)
class Threshold:
    """When the seeds of a side reached a value; medians are None where half or more never did."""

    value: float
    reached: int
    of: int
    steps: float | None
    seconds: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scores:
    """One side on one task."""

    letter: str
    seeds: tuple[tuple[str, int | None], ...]  # run and number
    end: int  # steps that the shortest of its seeds took
    finals: tuple[Final, ...]  # of `seeds`
    mean: float | None
    std: float | None
    iqm: Estimate | None
    area: Estimate | None
    evaluated: Estimate | None  # interquartile mean over seeds of the evaluation that ended each run
    thresholds: tuple[Threshold, ...]

    @property
    def values(self) -> list[float]:
        """The final values there are."""
        return [found.value for found in self.finals if found.value is not None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pair:
    """Two sides; a difference is that of the first less the second."""

    a: str
    b: str
    improvement: Estimate | None  # probability that a run of a is better than one of b
    difference: Estimate | None  # of interquartile means
    shared: int  # seeds that both sides have
    paired: Estimate | None  # mean difference of the same seeds
    chance: float | None  # how often sides of these runs, dealt out at random, differ as clearly
    better: str  # letter; "" where none can be called better
    words: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """Everything about one task."""

    name: str
    end: int  # steps up to which the sides are compared; of the longest with own_end
    limited_by: str  # the run that ends first, where runs end at different steps
    window: float  # steps
    sides: tuple[Scores, ...]
    pairs: tuple[Pair, ...]
    blocks: tuple[str, ...]  # why no verdict is given
    curves: Mapping[str, Mapping[str, Any]]  # letter -> over -> points


def seeds_by_task(sides: Sequence[Side]) -> dict[str, dict[str, list[Seed]]]:
    """Task -> letter -> the agents that have records."""
    found: dict[str, dict[str, list[Seed]]] = {}
    for side in sides:
        for seed in side.seeds:
            if len(seed.steps):
                found.setdefault(seed.task, {}).setdefault(side.letter, []).append(seed)
    return found


def measure(
    name: str, seeds: Mapping[str, Sequence[Seed]], evaluated: Mapping[tuple[str, int | None], float],
    blocks: Sequence[str], spec: Spec,
) -> Task:  # fmt: skip
    """Compares the sides on one task.

    Args:
        name: of the task.
        seeds: by letter; sides that have none are left out.
        evaluated: mean return of the evaluation by run and seed.
        blocks: what forbids a verdict.
        spec: what is measured.
    """
    every = [seed for group in seeds.values() for seed in group]
    shortest = min(every, key=lambda seed: seed.end)
    longest = max(seed.end for seed in every)
    end = longest if spec.own_end else shortest.end
    ends = {id(seed): seed.end if spec.own_end else end for seed in every}
    finals = {letter: [_final(s, ends[id(s)], evaluated, spec) for s in group] for letter, group in seeds.items()}
    levels = _thresholds(name, seeds, finals, end, spec)
    scores = tuple(
        _scores(letter, group, finals[letter], ends, levels, evaluated, spec) for letter, group in seeds.items()
    )
    pairs = [_pair(x, y, blocks, spec) for i, x in enumerate(scores) for y in scores[i + 1 :]]
    drawn = {
        letter: {
            over: curve(group, spec.curve, over, min(spec.samples, _CURVE_SAMPLES), spec.seed)
            for over in ("steps", "time")
        }
        for letter, group in seeds.items()
    }
    return Task(
        name=name, end=end, limited_by=shortest.run if shortest.end < longest else "", window=spec.last.width(end),
        sides=scores, pairs=tuple(pairs), blocks=tuple(blocks), curves=drawn,
    )  # fmt: skip


def _final(seed: Seed, end: float, evaluated: Mapping[tuple[str, int | None], float], spec: Spec) -> Final:
    if spec.metric == EVALUATION:
        value = evaluated.get((seed.run, seed.number))
        return Final(value, "" if value is not None else "was not evaluated")
    return final(seed.series.get(spec.curve), end, spec.last)


def _thresholds(
    task: str, seeds: Mapping[str, Sequence[Seed]], finals: Mapping[str, Sequence[Final]], end: float, spec: Spec
) -> list[float]:
    """Those asked for here; else half-way and nine tenths of the way from the start to the best side's end."""
    asked = [value for name, value in spec.thresholds if name in ("", task)]
    if asked:
        return list(dict.fromkeys(asked))
    starts = [s.series[spec.curve].values for group in seeds.values() for s in group if spec.curve in s.series]
    first = [float(values[np.isfinite(values)][0]) for values in starts if np.isfinite(values).any()]
    ends = [
        float(agg.interquartile_mean([np.array([f.value for f in group if f.value is not None])]))
        for group in finals.values()
        if any(f.value is not None for f in group)
    ]
    if not first or not ends:
        return []
    low, high = float(np.median(first)), max(ends) if spec.up else min(ends)
    if (high <= low) if spec.up else (high >= low):
        return []
    return [float(f"{low + share * (high - low):.3g}") for share in (0.5, 0.9)]


def _scores(
    letter: str, seeds: Sequence[Seed], finals: Sequence[Final], ends: Mapping[int, int], levels: Sequence[float],
    evaluated: Mapping[tuple[str, int | None], float], spec: Spec,
) -> Scores:  # fmt: skip
    values = np.array([found.value for found in finals if found.value is not None])
    areas = [area(seed.series.get(spec.curve), ends[id(seed)]) for seed in seeds]
    keys = tuple((seed.run, seed.number) for seed in seeds)
    played = [evaluated[key] for key in keys if key in evaluated]
    return Scores(
        letter=letter,
        seeds=keys,
        end=min(seed.end for seed in seeds),
        finals=tuple(finals),
        mean=float(values.mean()) if len(values) else None,
        std=float(values.std(ddof=1)) if len(values) > 1 else None,
        iqm=_estimate([values], agg.interquartile_mean, spec),
        area=_estimate([np.array([a for a in areas if a is not None])], agg.interquartile_mean, spec),
        evaluated=_estimate([np.array(played)], agg.interquartile_mean, spec) if len(played) == len(keys) else None,
        thresholds=tuple(_threshold(level, seeds, ends, spec) for level in levels),
    )


def _threshold(level: float, seeds: Sequence[Seed], ends: Mapping[int, int], spec: Spec) -> Threshold:
    found = [reached(seed.series.get(spec.curve), level, ends[id(seed)], spec.up) for seed in seeds]
    return Threshold(
        value=level,
        reached=sum(hit is not None for hit in found),
        of=len(found),
        steps=median([None if hit is None else hit.steps for hit in found]),
        seconds=median([None if hit is None else hit.seconds for hit in found]),
    )


def _estimate(strata: agg.Strata, statistic: Callable[[agg.Strata], Any], spec: Spec) -> Estimate | None:
    if not all(len(scores) for scores in strata):
        return None
    return agg.estimate(strata, statistic, spec.samples, spec.seed)


def _pair(x: Scores, y: Scores, blocks: Sequence[str], spec: Spec) -> Pair:
    sign = 1.0 if spec.up else -1.0
    first, second = np.array(x.values), np.array(y.values)
    difference = _estimate([first, second], agg.difference(agg.interquartile_mean), spec)
    apart = paired_differences(x, y)
    chance = agg.chance([first], [second], spec.samples, spec.seed) if difference else None
    better, words = judge(x, y, difference, chance, blocks, spec)
    return Pair(
        a=x.letter, b=y.letter,
        improvement=_estimate([sign * first, sign * second], agg.improvement, spec),
        difference=difference,
        shared=len(apart),
        paired=_estimate([np.array(apart)], agg.mean, spec) if len(apart) else None,
        chance=chance,
        better=better,
        words=words,
    )  # fmt: skip


def paired_differences(x: Scores, y: Scores) -> list[float]:
    """The difference of each seed number that comes once, with a value, on both sides."""
    one, other = (_by_number(side) for side in (x, y))
    return [one[number] - other[number] for number in one if number in other]


def _by_number(side: Scores) -> dict[int, float]:
    count = Counter(number for _, number in side.seeds)
    pairs = zip(side.seeds, side.finals, strict=True)
    return {n: f.value for (_, n), f in pairs if n is not None and count[n] == 1 and f.value is not None}


def judge(
    x: Scores, y: Scores, difference: Estimate | None, chance: float | None, blocks: Sequence[str], spec: Spec
) -> tuple[str, str]:
    """The letter of the better side, "" where none can be called so, and the verdict in words."""
    if blocks:
        return "", f"no verdict: {blocks[0]}"
    for side in (x, y):
        missing = [found.why for found in side.finals if found.value is None]
        if missing:
            which = f"{len(missing)} of {_seeds(len(side.finals))}"
            return "", f"no verdict: {side.letter} has {which} whose value {missing[0]}"
    n, m = len(x.finals), len(y.finals)
    if difference is None or not difference.excludes_zero or min(n, m) < 2:
        return "", f"not distinguishable with {n} and {_seeds(m)}"
    better = x.letter if (difference.value > 0) == spec.up else y.letter
    verdict = f"{better} is {'higher' if spec.direction == 'none' else 'better'}"
    if chance is None or chance <= _LIKELY:
        return better, verdict
    return better, (
        f"{verdict}, but on little ground: with {n} and {_seeds(m)}, {chance:.0%} of all ways to deal them "
        "out to two sides differ as clearly"
    )


def _seeds(count: int) -> str:
    return f"{count} seed" if count == 1 else f"{count} seeds"
