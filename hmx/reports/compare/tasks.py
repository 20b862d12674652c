"""Compare the sides on one task, and on all tasks they share."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from hmx.errors import counted
from hmx.reports.compare.findings import (
    OVER,
    TAUS,
    Aggregates,
    Overall,
    Pair,
    ScoreRange,
    SeedScore,
    SideScores,
    TaskFindings,
    ThresholdTimes,
    Verdict,
)  # fmt: skip
from hmx.reports.compare.request import EVALUATION, CompareRequest
from hmx.reports.curves import AgentMetrics, band
from hmx.stats import aggregates as agg
from hmx.stats.estimate import Estimate
from hmx.stats.intervals import Floats

Groups = Mapping[str, Sequence[AgentMetrics]]  # letter -> the agents of a side on one task
Evaluated = Mapping[tuple[str, int | None], float]  # mean return of the evaluation by run and seed
_CURVE_SAMPLES = 1000
_SIGNIFICANT = 0.05


def measure(
    name: str, groups: Groups, evaluated: Evaluated, random: Mapping[str, float], blocks: Sequence[str],
    request: CompareRequest,
) -> TaskFindings:  # fmt: skip
    """Compare the sides on one task."""
    every = [seed for group in groups.values() for seed in group]
    shortest = min(every, key=lambda seed: seed.end)
    longest = max(seed.end for seed in every)
    end = longest if request.own_end else shortest.end
    scores = {letter: [_score(seed, _end(seed, end, request), evaluated, request) for seed in group]
              for letter, group in groups.items()}  # fmt: skip
    levels = _thresholds(name, groups, scores, request)
    sides = tuple(
        _side(letter, group, scores[letter], end, levels, evaluated, request) for letter, group in groups.items()
    )
    start = _start(every, request)
    span = _range(name, sides, random, request, start) if request.direction != "none" else None
    pairs = (pair(x, y, blocks, request) for x, y in combinations(sides, 2))
    return TaskFindings(
        name=name, end=end, limited_by=shortest.run if shortest.end < longest else "",
        window=request.last.width(end), blocks=tuple(blocks), sides=sides,
        pairs=tuple(_placed(one, groups, span, start, end, request) for one in pairs),
        random=random.get(name) if request.is_return else None,
    )  # fmt: skip


def _end(seed: AgentMetrics, end: int, request: CompareRequest) -> int:
    return seed.end if request.own_end else end


def _score(seed: AgentMetrics, end: float, evaluated: Evaluated, request: CompareRequest) -> SeedScore:
    if request.metric == EVALUATION:
        value = evaluated.get((seed.run, seed.number))
        why = "" if value is not None else "was not evaluated"
    else:
        value, why = seed.curve(request.curve).final(end, request.last.width(end))
    return SeedScore(run=seed.run, seed=seed.number, value=value, why=why)


def _known(scores: Sequence[SeedScore]) -> Floats:
    return np.array([score.value for score in scores if score.value is not None])


def _thresholds(
    task: str, groups: Groups, scores: Mapping[str, Sequence[SeedScore]], request: CompareRequest
) -> list[float]:
    """Return the given thresholds, or half-way and nine tenths of the way from the start to the best side's end."""
    given = [value for name, value in request.thresholds if name in ("", task)]
    if given:
        return list(dict.fromkeys(given))
    low = _start([seed for group in groups.values() for seed in group], request)
    ends = [float(agg.interquartile_mean([_known(group)])) for group in scores.values() if len(_known(group))]
    if low is None or not ends:
        return []
    high = max(ends) if request.up else min(ends)
    if high == low or (high > low) != request.up:
        return []
    return [float(f"{low + share * (high - low):.3g}") for share in (0.5, 0.9)]


def _start(seeds: Sequence[AgentMetrics], request: CompareRequest) -> float | None:
    """Return the median of the first values of all seeds."""
    curves = [seed.curve(request.curve).within().values for seed in seeds]
    return median([float(values[0]) for values in curves if len(values)])


def _placed(
    found: Pair, groups: Groups, span: ScoreRange | None, start: float | None, end: int, request: CompareRequest
) -> Pair:
    """Add the difference as a share of a range, and the steps to nine tenths of the way to the worse end."""
    if not found.ends or span is None:
        return found
    if found.difference is not None and span.high != span.low:
        found = replace(found, range=span, share=found.difference.value / (span.high - span.low))
    worse = min(found.ends) if request.up else max(found.ends)
    if request.metric == EVALUATION or start is None or worse == start or (worse > start) != request.up:
        return found
    level, sides = float(f"{start + 0.9 * (worse - start):.3g}"), [groups[found.a], groups[found.b]]
    steps = [[math.inf if hit is None else hit[0] for hit in _hits(level, seeds, end, request)] for seeds in sides]
    p_value = agg.p_value(steps[:1], steps[1:], request.samples, request.seed)
    later = agg.improvement([np.array(side) for side in steps])  # share of pairs in which `a` needs more steps
    known = p_value <= _SIGNIFICANT and found.verdict.outcome != "no verdict"
    return replace(
        found, times=tuple(_times(level, seeds, end, request) for seeds in sides), times_p_value=p_value,
        sooner="" if not known else found.a if later < 0.5 else found.b,
    )  # fmt: skip


def _side(
    letter: str, seeds: Sequence[AgentMetrics], scores: Sequence[SeedScore], end: int, levels: Sequence[float],
    evaluated: Evaluated, request: CompareRequest,
) -> SideScores:  # fmt: skip
    values = _known(scores)
    areas = [seed.curve(request.curve).area(_end(seed, end, request)) for seed in seeds]
    known = tuple(value for value in areas if value is not None)
    played = [evaluated[key] for seed in seeds if (key := (seed.run, seed.number)) in evaluated]
    resamples = min(request.samples, _CURVE_SAMPLES)
    return SideScores(
        letter=letter,
        end=min(seed.end for seed in seeds),
        seeds=tuple(scores),
        mean=float(values.mean()) if len(values) else None,
        std=float(values.std(ddof=1)) if len(values) > 1 else None,
        iqm=_iqm(values, request),
        areas=known,
        area=_iqm(np.array(known), request),
        evaluated=_iqm(np.array(played), request) if len(played) == len(seeds) else None,
        thresholds=tuple(_times(level, seeds, end, request) for level in levels),
        curves={over: band(seeds, request.curve, over, resamples, request.seed) for over in OVER},
    )


def _iqm(values: Floats, request: CompareRequest) -> Estimate | None:
    return agg.iqm_estimate([values], request.samples, request.seed) if len(values) else None


def _times(level: float, seeds: Sequence[AgentMetrics], end: int, request: CompareRequest) -> ThresholdTimes:
    hits = _hits(level, seeds, end, request)
    return ThresholdTimes(
        value=level,
        reached=sum(hit is not None for hit in hits),
        of=len(hits),
        steps=median([None if hit is None else hit[0] for hit in hits]),
        seconds=median([None if hit is None else hit[1] for hit in hits]),
    )


def _hits(
    level: float, seeds: Sequence[AgentMetrics], end: int, request: CompareRequest
) -> list[tuple[float, float] | None]:
    return [seed.curve(request.curve).reached(level, _end(seed, end, request), request.up) for seed in seeds]


def pair(x: SideScores, y: SideScores, blocks: Sequence[str], request: CompareRequest) -> Pair:
    """Compare the final values of two sides, by the rules of `judge`."""
    first, second = [_known(x.seeds)], [_known(y.seeds)]
    if not len(first[0]) or not len(second[0]):
        verdict = judge(x, y, None, None, blocks, request)
        return Pair(a=x.letter, b=y.letter, improvement=None, difference=None, p_value=None, verdict=verdict)
    sign = 1.0 if request.up else -1.0
    difference = agg.iqm_difference(first, second, request.samples, request.seed)
    p_value = agg.p_value(first, second, request.samples, request.seed)
    paired = np.array(paired_differences(x, y))
    strata = [sign * first[0], sign * second[0]]
    area_difference, faster = _faster(x, y, request)
    return Pair(
        a=x.letter, b=y.letter,
        improvement=agg.bootstrap(strata, agg.improvement, request.samples, request.seed),
        difference=difference,
        ends=tuple(side.iqm.value for side in (x, y) if side.iqm is not None),
        shared=len(paired),
        paired=agg.mean_estimate([paired]) if len(paired) else None,
        p_value=p_value,
        area_difference=area_difference,
        faster="" if blocks else faster,
        verdict=judge(x, y, difference, p_value, blocks, request),
    )  # fmt: skip


def _faster(x: SideScores, y: SideScores, request: CompareRequest) -> tuple[Estimate | None, str]:
    """Return the difference of the areas under the curves, and the side that learns faster by the tests of `judge`."""
    if request.metric == EVALUATION or min(len(x.areas), len(y.areas)) < 2:
        return None, ""
    first, second = [np.array(x.areas)], [np.array(y.areas)]
    difference = agg.iqm_difference(first, second, request.samples, request.seed)
    if not difference.excludes_zero or agg.p_value(first, second, request.samples, request.seed) > _SIGNIFICANT:
        return difference, ""
    return difference, x.letter if (difference.value > 0) == request.up else y.letter


def paired_differences(x: SideScores, y: SideScores) -> list[float]:
    """Return the difference of each seed number that occurs once, with a value, on both sides."""
    found = []
    for side in (x, y):
        count = Counter(score.seed for score in side.seeds)
        found.append({s.seed: s.value for s in side.seeds if s.seed is not None and count[s.seed] == 1})
    one, other = found
    return [a - b for number, a in one.items() if a is not None and (b := other.get(number)) is not None]


def judge(
    x: SideScores, y: SideScores, difference: Estimate | None, p_value: float | None, blocks: Sequence[str],
    request: CompareRequest,
) -> Verdict:  # fmt: skip
    """Return which side is better: the interval must exclude 0 and the permutation test must be significant."""
    if blocks:
        return Verdict("no verdict", f"no verdict: {blocks[0]}")
    for side in (x, y):
        missing = [score.why for score in side.seeds if score.value is None]
        if missing:
            which = f"{len(missing)} of {counted(len(side.seeds), 'seed')}"
            return Verdict("no verdict", f"no verdict: {side.letter} has {which} whose value {missing[0]}")
    n, m = len(x.seeds), len(y.seeds)
    if difference is None or not difference.excludes_zero or min(n, m) < 2:
        return Verdict("not distinguishable", f"not distinguishable ({n} vs {counted(m, 'seed')})")
    letter = x.letter if (difference.value > 0) == request.up else y.letter
    word = "higher" if request.direction == "none" else "better"
    if p_value is None or p_value <= _SIGNIFICANT:
        return Verdict("better", f"{letter} is {word}", letter)
    evidence = (
        f"weak evidence that {letter} is {word}: permutation test p = {p_value:.2g} ({n} vs {counted(m, 'seed')})"
    )
    return Verdict("weak evidence", evidence)


def overall(
    tasks: Sequence[TaskFindings], letters: Sequence[str], random: Mapping[str, float], request: CompareRequest
) -> Overall:
    """Put the tasks that all sides share on one scale and compare the sides on all of them."""
    if len(letters) < 2:
        return Overall(why="only one side has records" if letters else "no side has records")
    shared = [task for task in tasks if [s.letter for s in task.sides] == list(letters)]
    shared = [task for task in shared if all(side.values for side in task.sides)]
    ranges = {task.name: _range(task.name, task.sides, random, request) for task in shared}
    unknown = [name for name, found in ranges.items() if found is None]
    if unknown:
        names = " ".join(f"--range {name}=LOW:HIGH" for name in unknown)
        return Overall(why=f"no common scale for {request.metric}; set one with {names}")
    known = {name: found for name, found in ranges.items() if found is not None and found.low != found.high}
    shared = [task for task in shared if task.name in known]
    if not shared:
        return Overall(why="no task on which all sides have values that differ")
    strata = [[_scaled(task.sides[i], known[task.name]) for task in shared] for i in range(len(letters))]
    return Overall(
        tasks=tuple(known),
        ranges=known,
        sides=tuple(_aggregates(letter, found, request) for letter, found in zip(letters, strata, strict=True)),
        pairs=tuple(
            _overall_pair(shared, i, j, strata, request) for i, j in combinations(range(len(letters)), 2)
        ),
    )  # fmt: skip


def _range(
    task: str, sides: Sequence[SideScores], random: Mapping[str, float], request: CompareRequest,
    start: float | None = None,
) -> ScoreRange | None:  # fmt: skip
    """Return the given range; for returns, from random play to the best seed; otherwise from `start`, if it is given.

    Without a start, the range of returns begins at the worst seed, and other metrics have none.
    """
    for name, low, high in request.ranges:
        if name == task:
            return ScoreRange(low, high, "given by --range")
    values = [value for side in sides for value in side.values]
    if not values or (start is None and not request.is_return):
        return None
    best = max(values) if request.up else min(values)
    if request.is_return and random.get(task, best) < best:
        return ScoreRange(random[task], best, "from random play to the best seed of all sides")
    if start is None:
        return ScoreRange(min(values), best, "from the worst seed of all sides to the best")
    ends = [side.iqm.value for side in sides if side.iqm is not None]
    learned = start < min(ends) if request.up else start > max(ends)
    return ScoreRange(start, best, "from the start of training to the best seed of all sides") if learned else None


def _scaled(side: SideScores, scale: ScoreRange) -> Floats:
    return (np.array(side.values) - scale.low) / (scale.high - scale.low)


def _aggregates(letter: str, strata: agg.Strata, request: CompareRequest) -> Aggregates:
    mean = agg.mean_estimate(strata)
    return Aggregates(
        letter=letter,
        iqm=agg.iqm_estimate(strata, request.samples, request.seed),
        # The median of two tasks is their mean.
        median=mean if len(strata) < 3 else agg.bootstrap(
            strata, agg.median, request.samples, request.seed, expand=True
        ),
        mean=mean,
        gap=agg.gap_estimate(strata),
        profile=tuple(agg.profile(strata, TAUS).tolist()),
        scores=tuple(tuple(scores.tolist()) for scores in strata),
    )  # fmt: skip


def _overall_pair(
    tasks: Sequence[TaskFindings], i: int, j: int, strata: Sequence[agg.Strata], request: CompareRequest
) -> Pair:
    first, second = strata[i], strata[j]
    # On this scale, more is better for every metric.
    difference = agg.iqm_difference(first, second, request.samples, request.seed)
    p_value = agg.p_value(first, second, request.samples, request.seed)
    blocks = [f"{task.name}: {block}" for task in tasks for block in task.blocks]
    scaled = difference if request.up else difference.mirrored()
    # The verdict uses the rule for the task with the fewest seeds.
    verdicts = [judge(task.sides[i], task.sides[j], scaled, p_value, blocks, request) for task in tasks]
    fewest = [min(len(task.sides[i].seeds), len(task.sides[j].seeds)) for task in tasks]
    least = min(range(len(tasks)), key=lambda t: (bool(verdicts[t].better), fewest[t]))
    return Pair(
        a=tasks[0].sides[i].letter, b=tasks[0].sides[j].letter,
        ends=tuple(float(agg.interquartile_mean(scores)) for scores in (first, second)),
        improvement=agg.bootstrap([*first, *second], agg.improvement, request.samples, request.seed),
        difference=difference, p_value=p_value, verdict=verdicts[least],
    )  # fmt: skip


def median(values: Sequence[float | None]) -> float | None:
    """Return the median, where None counts as later than any value; None if the middle was not reached."""
    center = float(np.median([math.inf if value is None else value for value in values])) if values else math.inf
    return center if math.isfinite(center) else None
