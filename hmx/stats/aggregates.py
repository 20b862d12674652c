"""Aggregates over seeds and tasks with confidence intervals, and the permutation test of two sides.

The definitions are those of Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical Precipice"
(2021). Scores come as strata, one array or sequence of runs `[n]` per task (and side), which may differ in length.
Every statistic also takes strata with leading axes, `[..., n]`, and returns one number for each of their elements.
Every function raises `HmxError` for scores that are not of this form.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hmx.errors import HmxError
from hmx.stats.estimate import Estimate
from hmx.stats.intervals import LEVEL, Floats, t_quantile

Scores = Sequence[ArrayLike]
Strata = Sequence[Floats]
Statistic = Callable[[Strata], Floats]
Indices = NDArray[np.int64]

RESAMPLES = 10_000
_BLOCK = 1 << 22  # numbers that are held at once while resampling
_UNTRIMMED = 4  # with fewer scores the interquartile mean is the mean


def interquartile_mean(strata: Scores) -> Floats:
    """Compute the mean of the middle half of all scores; fewer than 4 scores are not trimmed."""
    scores = np.sort(np.concatenate(_arrays(strata), axis=-1), axis=-1)
    count = scores.shape[-1]
    trimmed: Floats = scores[..., count // 4 : count - count // 4].mean(-1)
    return trimmed


def median(strata: Scores) -> Floats:
    """Compute the median over tasks of the mean over runs."""
    return np.asarray(np.median(np.stack([scores.mean(-1) for scores in _arrays(strata)], axis=-1), axis=-1))


def profile(strata: Scores, taus: Sequence[float]) -> Floats:
    """Compute the share of runs above each of `taus`, with equal weight per task: `[..., taus]`."""
    above = [np.stack([(scores > tau).mean(-1) for tau in taus], axis=-1) for scores in _arrays(strata)]
    return np.asarray(np.stack(above).mean(0))


def improvement(strata: Scores) -> Floats:
    """Compute the probability that a run of one side beats one of another on a random task; a tie counts as half.

    The tasks of the first side come first, then those of the second in the same order.
    """
    arrays = _arrays(strata)
    half = len(arrays) // 2
    if len(arrays) != 2 * half:
        raise HmxError(
            f"cannot compare two sides with {len(arrays)} tasks in all", "give the same tasks for both sides"
        )
    pairs = ((x[..., :, None], y[..., None, :]) for x, y in zip(arrays[:half], arrays[half:], strict=True))
    wins = [((first > second) + 0.5 * (first == second)).mean((-2, -1)) for first, second in pairs]
    return np.asarray(np.stack(wins).mean(0))


def mean_estimate(strata: Scores) -> Estimate:
    """Estimate the mean over tasks of the mean over runs, with Student's t interval (Welch 1947 for several tasks)."""
    arrays = _arrays(strata)
    weight = 1 / len(arrays)
    value = weight * math.fsum(float(scores.mean()) for scores in arrays)
    if min(len(scores) for scores in arrays) < 2:
        return Estimate(value)
    errors = [(weight**2 * float(scores.var(ddof=1)) / len(scores), len(scores) - 1) for scores in arrays]
    return _welch(value, errors)


def gap_estimate(strata: Scores) -> Estimate:
    """Estimate the optimality gap: the mean distance of scores below 1; higher scores count as 1."""
    gap = mean_estimate([np.minimum(scores, 1.0) for scores in _arrays(strata)]).mirrored(1.0)
    return gap if gap.low is None else gap._replace(low=max(gap.low, 0.0))  # a gap is never negative


def iqm_estimate(strata: Scores, resamples: int = RESAMPLES, seed: int = 0) -> Estimate:
    """Estimate the interquartile mean, with an expanded percentile bootstrap; with fewer than 4 scores, Student's t."""
    arrays = _arrays(strata)
    if len(arrays) == 1 and len(arrays[0]) < _UNTRIMMED:
        return mean_estimate(arrays)
    return bootstrap(arrays, interquartile_mean, resamples, seed, expand=True)


def iqm_difference(first: Scores, second: Scores, resamples: int = RESAMPLES, seed: int = 0) -> Estimate:
    """Estimate the interquartile mean of one side less that of the other.

    The interval is a percentile bootstrap. If a side has fewer than 4 scores, it is the interval of Yuen (1974), which
    for means is Welch's t interval.
    """
    one, other = _arrays(first), _arrays(second)
    half = len(one)
    if half == len(other) == 1 and 1 < min(len(one[0]), len(other[0])) < _UNTRIMMED:
        value = float(interquartile_mean(one) - interquartile_mean(other))
        return _welch(value, [_iqm_error(one[0]), _iqm_error(other[0])])
    return bootstrap(
        [*one, *other],
        lambda strata: interquartile_mean(strata[:half]) - interquartile_mean(strata[half:]),
        resamples,
        seed,
    )


def bootstrap(
    strata: Scores, statistic: Statistic, resamples: int = RESAMPLES, seed: int = 0, level: float = LEVEL,
    expand: bool = False,
) -> Estimate:  # fmt: skip
    """Estimate a statistic with a stratified percentile bootstrap (Efron 1979): runs are resampled within each stratum.

    Args:
        strata: scores, one array `[n]` per stratum, each of at least one.
        statistic: statistic of strata.
        resamples: number of resamples.
        seed: seed of the resamples; the same one gives the same interval.
        level: nominal coverage.
        expand: widen the interval as Student's t and the small-sample variance would (Hesterberg 2015).
    """
    arrays = _arrays(strata)
    value = float(statistic(arrays))
    sizes = [len(scores) for scores in arrays]
    if min(sizes) < 2:
        return Estimate(value)
    half = len(sizes) // 2
    pairs = sum(x * y for x, y in zip(sizes[:half], sizes[half:], strict=False))
    found = [
        statistic([scores[index] for scores, index in zip(arrays, block, strict=True)])
        for block in _resamples(sizes, resamples, seed, width=max(sum(sizes), pairs))
    ]
    low, high = np.quantile(np.concatenate(found), _tails(sizes, level, expand))
    return Estimate(value, float(low), float(high))


def band(curves: Floats, resamples: int = 1000, seed: int = 0) -> tuple[Floats, Floats | None, Floats | None]:
    """Return the interquartile mean of curves `[runs, points]` and the ends of its interval; None for a single run."""
    center = interquartile_mean([curves.T])
    if len(curves) < 2:
        return center, None, None
    blocks = _resamples([len(curves)], resamples, seed, width=curves.size)
    found = [interquartile_mean([np.moveaxis(curves[index], 1, -1)]) for (index,) in blocks]
    low, high = np.quantile(np.concatenate(found), _tails([len(curves)], LEVEL, expand=True), axis=0)
    return center, low, high


def p_value(first: Scores, second: Scores, permutations: int = 10_000, seed: int = 0) -> float:
    """Return the two-sided p-value of the permutation test of `improvement`, runs permuted within each task.

    For one task this is the test of Mann and Whitney. It is exact where there are no more than `permutations` ways to
    assign the runs to the two sides.
    """
    ones, others = _arrays(first), _arrays(second)
    if len(ones) != len(others):
        raise HmxError(f"cannot compare {len(ones)} tasks with {len(others)}", "give the same tasks for both sides")
    pools = [np.concatenate([x, y]) for x, y in zip(ones, others, strict=True)]
    sizes = [len(x) for x in ones]
    exact, blocks = _permutations(sizes, [len(pool) for pool in pools], permutations, seed)

    def distance(block: Sequence[Indices]) -> Floats:
        mixed = [pool[index] for pool, index in zip(pools, block, strict=True)]
        one = [scores[..., :n] for scores, n in zip(mixed, sizes, strict=True)]
        other = [scores[..., n:] for scores, n in zip(mixed, sizes, strict=True)]
        return np.abs(improvement([*one, *other]) - 0.5)

    observed = distance([np.arange(len(pool))[None] for pool in pools])[0]
    hits = count = 0
    for block in blocks:
        found = distance(block)
        hits, count = hits + int((found >= observed - 1e-12).sum()), count + len(found)
    return hits / count if exact else (hits + 1) / (count + 1)


def _arrays(strata: Scores) -> list[Floats]:
    """Return scores as arrays `[..., n]`, one per task."""
    arrays = [np.asarray(scores, np.float64) for scores in strata]
    if not arrays or min(scores.ndim for scores in arrays) == 0:
        raise HmxError(
            "cannot use these scores: expected one sequence of runs per task", "for a single task, write [scores]"
        )
    if min(scores.size for scores in arrays) == 0:
        raise HmxError("cannot use these scores: a task has no run", "leave out tasks without runs")
    return arrays


def _welch(value: float, errors: Sequence[tuple[float, int]]) -> Estimate:
    """Return a t interval from the squared standard errors of independent parts and their degrees of freedom."""
    total = math.fsum(error for error, _ in errors)
    if not total > 0:
        return Estimate(value, value, value)
    dof = 1 / math.fsum((error / total) ** 2 / dof for error, dof in errors)
    half = t_quantile((1 + LEVEL) / 2, dof) * math.sqrt(total)
    return Estimate(value, value - half, value + half)


def _iqm_error(scores: Floats) -> tuple[float, int]:
    """Return the squared standard error of an interquartile mean and its degrees of freedom (Yuen 1974)."""
    cut = len(scores) // 4
    kept = np.sort(scores)[cut : len(scores) - cut]
    winsorised = np.clip(scores, kept[0], kept[-1])
    return float(((winsorised - winsorised.mean()) ** 2).sum()) / (len(kept) * (len(kept) - 1)), len(kept) - 1


def _tails(sizes: Sequence[int], level: float, expand: bool) -> tuple[float, float]:
    """Return the quantiles of a bootstrap distribution at the ends of its interval."""
    tail = (1 - level) / 2
    if expand:
        count, dof = sum(sizes), sum(sizes) - len(sizes)
        tail = math.erfc(math.sqrt(count / dof / 2) * t_quantile(1 - tail, dof)) / 2
    return tail, 1 - tail


def _resamples(sizes: Sequence[int], resamples: int, seed: int, width: int) -> Iterator[list[Indices]]:
    """Yield indices drawn with replacement in blocks, `[resamples, n]` for each size n.

    A block is as large as memory allows if one resample becomes `width` numbers.
    """
    draw = np.random.default_rng(seed)
    rows = max(1, _BLOCK // width)
    for start in range(0, resamples, rows):
        yield [draw.integers(n, size=(min(rows, resamples - start), n)) for n in sizes]


def _permutations(
    sizes: Sequence[int], pools: Sequence[int], permutations: int, seed: int
) -> tuple[bool, Iterator[list[Indices]]]:
    """Return whether all are included, and blocks of orders of each pool, whose first `sizes` go to one side."""
    counts = [math.comb(pool, n) for n, pool in zip(sizes, pools, strict=True)]
    rows = max(1, _BLOCK // max(*pools, *(n * (pool - n) for n, pool in zip(sizes, pools, strict=True))))
    if math.prod(counts) <= permutations:
        return True, _all_permutations(sizes, pools, counts, rows)
    draw = np.random.default_rng(seed)
    return False, (
        [draw.random((min(rows, permutations - start), pool)).argsort(-1) for pool in pools]
        for start in range(0, permutations, rows)
    )


def _all_permutations(
    sizes: Sequence[int], pools: Sequence[int], counts: Sequence[int], rows: int
) -> Iterator[list[Indices]]:
    orders = []
    for n, pool in zip(sizes, pools, strict=True):
        chosen = [set(c) for c in itertools.combinations(range(pool), n)]
        orders.append(np.array([[*sorted(c), *(i for i in range(pool) if i not in c)] for c in chosen], np.int64))
    total = math.prod(counts)
    for start in range(0, total, rows):
        numbers = np.unravel_index(np.arange(start, min(start + rows, total)), counts)
        yield [order[number] for order, number in zip(orders, numbers, strict=True)]
