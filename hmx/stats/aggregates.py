"""How good several runs are, and how sure one may be of it: aggregates over seeds and tasks with bootstrap intervals.

The definitions are those of Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical Precipice"
(2021). Scores come as strata, one array of shape `[n]` per task (and side), which need not be of one length. Every
statistic also takes strata with leading axes, `[..., n]`, and then gives one number for each of their elements.

NumPy alone is needed here, no JAX.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Strata = Sequence[Array]
Statistic = Callable[[Strata], Any]

LEVEL = 0.95
_BLOCK = 1 << 22  # numbers that are held at once while resampling


class Estimate(NamedTuple):
    """A figure and its percentile interval; None where that cannot be known, as from a single run."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def excludes_zero(self) -> bool:
        """Whether 0 lies outside the interval."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


def interquartile_mean(strata: Strata) -> Any:
    """The mean of the middle half of all scores; a quarter of fewer than 4 is none, so that it is then the mean."""
    scores = np.sort(np.concatenate(list(strata), axis=-1), axis=-1)
    count = scores.shape[-1]
    return scores[..., count // 4 : count - count // 4].mean(-1)


def mean(strata: Strata) -> Any:
    """The mean over tasks of the mean over runs."""
    return _task_means(strata).mean(-1)


def median(strata: Strata) -> Any:
    """The median over tasks of the mean over runs."""
    return np.median(_task_means(strata), axis=-1)


def optimality_gap(strata: Strata, target: float = 1.0) -> Any:
    """How far scores stay below `target` on average; what is above it counts as the target itself."""
    return target - mean([np.minimum(scores, target) for scores in strata])


def profile(strata: Strata, taus: Sequence[float]) -> Array:
    """The share of runs above each of `taus`, tasks counting alike: `[..., taus]`."""
    above = [np.stack([(scores > tau).mean(-1) for tau in taus], axis=-1) for scores in strata]
    shares: Array = np.stack(above).mean(0)
    return shares


def improvement(strata: Strata) -> Any:
    """The probability that a run of one side beats one of another on a random task; a tie counts as half.

    Args:
        strata: the tasks of the first side, then as many of the second in the same order.
    """
    half = len(strata) // 2
    wins = [_win_rate(x, y) for x, y in zip(strata[:half], strata[half:], strict=True)]
    return np.stack(wins).mean(0)


def difference(statistic: Statistic) -> Statistic:
    """A statistic of one side less that of another; strata as for `improvement`."""

    def apart(strata: Strata) -> Any:
        half = len(strata) // 2
        return statistic(strata[:half]) - statistic(strata[half:])

    return apart


def estimate(
    strata: Strata, statistic: Statistic, samples: int = 10_000, seed: int = 0, level: float = LEVEL
) -> Estimate:
    """A statistic with its stratified percentile bootstrap interval (Efron 1979): runs are redrawn within each stratum.

    Where all possible redraws are no more than `samples`, each is taken once, and nothing is left to chance.

    Args:
        strata: scores, one array `[n]` per stratum, each of at least one.
        statistic: of strata.
        samples: redraws at most.
        seed: of the redraws; the same one gives the same interval.
        level: what the interval shall hold.
    """
    strata = [np.asarray(scores, np.float64) for scores in strata]
    value = float(statistic(strata))
    if min(len(scores) for scores in strata) < 2:
        return Estimate(value)
    drawn = redraws([len(scores) for scores in strata], samples, seed)
    found = [statistic([scores[index] for scores, index in zip(strata, block, strict=True)]) for block in drawn]
    low, high = _ends(np.concatenate(found), level)
    return Estimate(value, float(low), float(high))


def band(
    curves: Array, samples: int = 1000, seed: int = 0, level: float = LEVEL
) -> tuple[Array, Array | None, Array | None]:
    """The interquartile mean of curves `[runs, points]` and the ends of its interval; None for a single run."""
    centre = interquartile_mean([curves.T])
    if len(curves) < 2:
        return centre, None, None
    blocks = redraws([len(curves)], samples, seed, width=curves.shape[1])
    found = [interquartile_mean([np.moveaxis(curves[index], 1, -1)]) for (index,) in blocks]
    low, high = _ends(np.concatenate(found), level)
    return centre, low, high


def redraws(sizes: Sequence[int], samples: int, seed: int, width: int = 1) -> Iterator[list[Array]]:
    """Indices of redraws with replacement, in blocks: `[redraws, n]` for each size n; every one there is if few are."""
    count = math.prod(n**n for n in sizes) if sum(n * math.log(n) for n in sizes) < 60 else math.inf
    rows = max(1, _BLOCK // (width * max(sum(sizes), sum(a * b for a, b in itertools.pairwise([*sizes, 1])))))
    if count <= samples:
        yield from _every(sizes, int(count), rows)
        return
    draw = np.random.default_rng(seed)
    for start in range(0, samples, rows):
        size = min(rows, samples - start)
        yield [draw.integers(n, size=(size, n)) for n in sizes]


def chance(first: Strata, second: Strata, samples: int = 10_000, seed: int = 0) -> float:
    """How often one side beats the other as clearly when runs are dealt out to them at random, task by task.

    The permutation test of `improvement` (of Mann and Whitney, for one task), in either direction. Where there are no
    more than `samples` ways to deal, each is counted once, and the answer is exact.

    Args:
        first: scores of one side, an array `[n]` per task.
        second: those of the other side.
        samples: deals at most.
        seed: of the deals.
    """
    pools = [np.concatenate([x, y]).astype(np.float64) for x, y in zip(first, second, strict=True)]
    sizes = [len(x) for x in first]
    exact, blocks = _deals(sizes, [len(pool) for pool in pools], samples, seed)

    def apart(block: Sequence[Array]) -> Array:
        dealt = [pool[index] for pool, index in zip(pools, block, strict=True)]
        one = [scores[..., :n] for scores, n in zip(dealt, sizes, strict=True)]
        other = [scores[..., n:] for scores, n in zip(dealt, sizes, strict=True)]
        found: Array = np.abs(improvement([*one, *other]) - 0.5)
        return found

    seen = apart([np.arange(len(pool))[None] for pool in pools])[0]
    hits = deals = 0
    for block in blocks:
        found = apart(block)
        hits, deals = hits + int((found >= seen - 1e-12).sum()), deals + len(found)
    return hits / deals if exact else (hits + 1) / (deals + 1)


def _deals(sizes: Sequence[int], pools: Sequence[int], samples: int, seed: int) -> tuple[bool, Iterator[list[Array]]]:
    """Whether every deal is there, and the deals in blocks: orders of each pool whose first `sizes` go to one side."""
    counts = [math.comb(pool, n) for n, pool in zip(sizes, pools, strict=True)]
    rows = max(1, _BLOCK // max(*pools, *(n * (pool - n) for n, pool in zip(sizes, pools, strict=True))))
    if math.prod(counts) <= samples:
        return True, _every_deal(sizes, pools, counts, rows)
    draw = np.random.default_rng(seed)
    return False, (
        [draw.random((min(rows, samples - start), pool)).argsort(-1) for pool in pools]
        for start in range(0, samples, rows)
    )


def _every_deal(sizes: Sequence[int], pools: Sequence[int], counts: Sequence[int], rows: int) -> Iterator[list[Array]]:
    orders = []
    for n, pool in zip(sizes, pools, strict=True):
        chosen = [set(c) for c in itertools.combinations(range(pool), n)]
        orders.append(np.array([[*sorted(c), *(i for i in range(pool) if i not in c)] for c in chosen], np.int64))
    total = math.prod(counts)
    for start in range(0, total, rows):
        numbers = np.unravel_index(np.arange(start, min(start + rows, total)), counts)
        yield [order[number] for order, number in zip(orders, numbers, strict=True)]


def _every(sizes: Sequence[int], count: int, rows: int) -> Iterator[list[Array]]:
    for start in range(0, count, rows):
        numbers = np.unravel_index(np.arange(start, min(start + rows, count)), [n**n for n in sizes])
        yield [np.stack(np.unravel_index(number, [n] * n), axis=-1) for number, n in zip(numbers, sizes, strict=True)]


def _ends(found: Array, level: float) -> Array:
    tail = (1 - level) / 2
    ends: Array = np.quantile(found, [tail, 1 - tail], axis=0)
    return ends


def _task_means(strata: Strata) -> Array:
    return np.stack([scores.mean(-1) for scores in strata], axis=-1)


def _win_rate(x: Array, y: Array) -> Array:
    first, second = x[..., :, None], y[..., None, :]
    rate: Array = ((first > second) + 0.5 * (first == second)).mean((-2, -1))
    return rate
