"""Statistics of a few numbers in plain Python: means, medians, and how sure one may be of them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple


class Interval(NamedTuple):
    """A confidence interval."""

    low: float
    high: float


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean, summed without loss; at least one value."""
    _some(values)
    return math.fsum(values) / len(values)


def median(values: Sequence[float]) -> float:
    """The middle value, or the mean of the two in the middle; at least one value."""
    return quantile(values, 0.5)


def quantile(values: Sequence[float], q: float) -> float:
    """The q-quantile, interpolating between neighbours (type 7 of Hyndman and Fan 1996); at least one value."""
    _some(values)
    ordered = sorted(values)
    at = q * (len(ordered) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    if ordered[low] == ordered[high]:
        return ordered[low]
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


def stdev(values: Sequence[float]) -> float:
    """The sample standard deviation (n - 1 in the denominator); at least two values."""
    if len(values) < 2:
        raise ValueError("a standard deviation needs two values")
    centre = mean(values)
    return math.sqrt(math.fsum((v - centre) ** 2 for v in values) / (len(values) - 1))


def mean_interval(values: Sequence[float], level: float = 0.95) -> Interval | None:
    """Student's t interval of the mean; None for fewer than two values."""
    if len(values) < 2:
        return None
    half = t_quantile((1 + level) / 2, len(values) - 1) * stdev(values) / math.sqrt(len(values))
    centre = mean(values)
    return Interval(centre - half, centre + half)


def bootstrap(
    values: Sequence[float],
    statistic: Callable[[Sequence[float]], float] = mean,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Interval | None:
    """The percentile bootstrap interval of a statistic (Efron 1979); the same seed gives the same interval.

    For heavy tails, as those of HackMatrix returns, where one win is worth hundreds. None for fewer than two values.
    """
    if len(values) < 2:
        return None
    draw = random.Random(seed)
    found = sorted(statistic(draw.choices(values, k=len(values))) for _ in range(resamples))
    tail = (1 - level) / 2
    return Interval(quantile(found, tail), quantile(found, 1 - tail))


def wilson(successes: int, trials: int, level: float = 0.95) -> Interval | None:
    """The score interval of a rate (Wilson 1927); None without trials."""
    if not 0 <= successes <= trials:
        raise ValueError(f"{successes} successes in {trials} trials")
    if trials == 0:
        return None
    z = z_quantile((1 + level) / 2)
    rate = successes / trials
    scale = 1 + z * z / trials
    centre = (rate + z * z / (2 * trials)) / scale
    half = z / scale * math.sqrt(rate * (1 - rate) / trials + z * z / (4 * trials * trials))
    # Rounding must not push an end past what was seen.
    return Interval(max(0.0, min(centre - half, rate)), min(1.0, max(centre + half, rate)))


def z_quantile(p: float) -> float:
    """The p-quantile of the standard normal distribution."""
    from statistics import NormalDist  # costs more to import than all of this floor

    return NormalDist().inv_cdf(p)


def t_quantile(p: float, freedom: int) -> float:
    """The p-quantile of Student's t distribution with `freedom` >= 1 degrees, for 0 < p < 1."""
    if not 0 < p < 1 or freedom < 1:
        raise ValueError(f"no quantile {p} of t with {freedom} degrees of freedom")
    if p < 0.5:
        return -t_quantile(1 - p, freedom)
    low, high = 0.0, 1.0
    while _t_cdf(high, freedom) < p:
        low, high = high, high * 2
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if _t_cdf(middle, freedom) < p:
            low = middle
        else:
            high = middle
    return high


def _t_cdf(t: float, freedom: int) -> float:
    """P(T <= t) for t >= 0, by the incomplete beta function (Abramowitz and Stegun 26.7.1)."""
    return 1 - _beta(freedom / 2, 0.5, freedom / (freedom + t * t)) / 2


def _beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function (Abramowitz and Stegun 26.5.8, evaluated by Lentz's method)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - _beta(b, a, 1 - x)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    value, c, d = 1.0, 1.0, 0.0
    for i in range(10_000):
        m = i // 2
        if i == 0:
            term = 1.0
        elif i % 2 == 0:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        else:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d = 1 / _not_zero(1 + term * d)
        c = _not_zero(1 + term / c)
        value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return front * (value - 1) / a


def _not_zero(x: float) -> float:
    return x if abs(x) > 1e-300 else 1e-300


def _some(values: Sequence[float]) -> None:
    if not values:
        raise ValueError("no values")
