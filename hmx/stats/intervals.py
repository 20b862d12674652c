"""Statistics of one sample: mean, median, and confidence intervals.

`scipy.special` takes 0.3 seconds to import and `scipy.stats` more than one, while `hmx compare` takes one second, so
Student's t is computed here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEVEL = 0.95

_GAPS = -30.0, 30.0  # logarithms of the smallest and largest gap of `_lower_end`
_BISECTIONS = 60
_CENTRAL = 1e-3  # standard errors from the mean within which the approximation loses its digits


class Interval(NamedTuple):
    """A confidence interval."""

    low: float
    high: float


def mean(values: Sequence[float]) -> float:
    """Return the arithmetic mean of at least one value, summed without rounding."""
    return math.fsum(values) / len(values)


def median(values: Sequence[float]) -> float:
    """Return the middle value, or the mean of the two in the middle; at least one value."""
    return float(np.median(values))


def median_interval(values: Sequence[float], level: float = LEVEL) -> Interval | None:
    """Return the interval of the median between two order statistics, valid for any distribution.

    Its coverage is at least `level` (Thompson 1936, Annals of Mathematical Statistics 7). None if no two values reach
    it, as with fewer than 6 values at 95 %.
    """
    size, rank, tail = len(values), 0, 0
    # `tail` of 2^size sequences of signs have fewer than `rank` values below the median.
    while rank < size // 2 and 2 * (tail + math.comb(size, rank)) <= (1 - level) * 2**size:
        tail, rank = tail + math.comb(size, rank), rank + 1
    ordered = sorted(values)
    return Interval(ordered[rank - 1], ordered[-rank]) if rank else None


def mean_interval(values: Sequence[float], level: float = LEVEL) -> Interval | None:
    """Return Student's t interval of the mean; None for fewer than two values."""
    if len(values) < 2:
        return None
    half = t_quantile((1 + level) / 2, len(values) - 1) * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    center = mean(values)
    return Interval(center - half, center + half)


def bootstrap(values: Sequence[float], level: float = LEVEL, resamples: int = 2000, seed: int = 0) -> Interval | None:
    """Return the percentile bootstrap interval of the mean (Efron 1979); the same seed gives the same interval.

    It suits many values with a heavy tail, such as returns of HackMatrix, where one win is worth hundreds. None for
    fewer than two values.
    """
    if len(values) < 2:
        return None
    means = np.random.default_rng(seed).choice(np.asarray(values), (resamples, len(values))).mean(1)
    low, high = np.quantile(means, ((1 - level) / 2, (1 + level) / 2))
    return Interval(float(low), float(high))


def wilson(successes: int, trials: int, level: float = LEVEL) -> Interval | None:
    """Return the score interval of a rate (Wilson 1927); None without trials."""
    from statistics import NormalDist  # `hmx compare` does not need it and starts sooner without it

    if not 0 <= successes <= trials:
        raise ValueError(f"{successes} successes in {trials} trials")
    if trials == 0:
        return None
    z = NormalDist().inv_cdf((1 + level) / 2)
    rate = successes / trials
    scale = 1 + z * z / trials
    center = (rate + z * z / (2 * trials)) / scale
    half = z / scale * math.sqrt(rate * (1 - rate) / trials + z * z / (4 * trials * trials))
    # Rounding must not move an end past the observed rate.
    return Interval(max(0.0, min(center - half, rate)), min(1.0, max(center + half, rate)))


def bounded_interval(values: Sequence[float] | Floats, bounds: Interval, level: float = LEVEL) -> Interval | None:
    """Return an interval of the mean of independent values that lie between `bounds`, for any distribution of them.

    Normal intervals are too short if a large value is too rare for the sample: without one in it, the sample does not
    show its share in the mean. Here the lower end is that quantile of the weighted mean of the values and of the lower
    bound, with weights uniform on the simplex, which has (1 - level) / 2 below it; the upper end is its mirror image
    (Gaffke 2005; Learned-Miller and Thomas 2019, arXiv:1905.06208). For values at the two bounds this is the exact
    interval of Clopper and Pearson (1934). For other values, coverage of at least `level` is a conjecture without a
    known counterexample. None without values.

    Raises:
        ValueError: a value outside the bounds.
    """
    if not len(values):
        return None
    if min(values) < bounds.low or max(values) > bounds.high:
        raise ValueError(f"values from {min(values)} to {max(values)} are not between {bounds.low} and {bounds.high}")
    sample, tail = np.asarray(values, np.float64), (1 - level) / 2
    low = bounds.low + _lower_end(sample - bounds.low, tail)
    return Interval(low, bounds.high - _lower_end(bounds.high - sample, tail))


def _lower_end(values: Floats, tail: float) -> float:
    """Return the `tail` quantile of the weighted mean of 0 and of values of at least 0, by a saddlepoint approximation.

    Uniform weights on the simplex are E_i / sum(E) with independent exponentials E_i, so the mean is below m if
    sum(E_i (x_i - m)) < 0. Lugannani and Rice (1980) approximate the probability of that. The saddlepoint has a closed
    form if a gap determines m instead of the reverse; m and the probability increase with the gap.
    """
    largest = float(values.max())
    if not largest:
        return 0.0
    points = np.append(values / largest, 0.0)
    low, high = _GAPS
    center = 0.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        away = points + math.exp(middle)
        center = float((points / away).sum() / (1 / away).sum())
        root = math.sqrt(2 * max(float(np.log(away).sum()) - len(away) * math.log(center + math.exp(middle)), 0.0))
        slope = math.sqrt(float(np.square((points - center) / away).sum()))
        below = 0.5
        if root > _CENTRAL:
            density = math.exp(-root * root / 2) / math.sqrt(2 * math.pi)
            below = math.erfc(root / math.sqrt(2)) / 2 + density * (1 / slope - 1 / root)
        low, high = (middle, high) if below < tail else (low, middle)
    return largest * center


def t_quantile(p: float, dof: float) -> float:
    """Return the p-quantile of Student's t distribution, for 0 < p < 1 and at least 1 degree of freedom."""
    if not 0 < p < 1 or dof < 1:
        raise ValueError(f"no quantile {p} of t with {dof} degrees of freedom")
    if p < 0.5:
        return -t_quantile(1 - p, dof)
    # t = sqrt(dof) tan(angle), and the density of the angle is scale * cos(angle) ** (dof - 1). Newton's method finds
    # the angle from below, since the distribution is concave there; Simpson's rule integrates the density.
    scale = math.exp(math.lgamma((dof + 1) / 2) - math.lgamma(dof / 2)) / math.sqrt(math.pi)
    angle, step = 0.0, 1.0
    while step > 1e-12 * angle:
        density = scale * np.cos(np.linspace(0.0, angle, 1001)) ** (dof - 1)
        mass = angle / 3000 * float(density[0] + 4 * density[1::2].sum() + 2 * density[2:-1:2].sum() + density[-1])
        step = (p - 0.5 - mass) / float(density[-1])
        angle += step
    return math.sqrt(dof) * math.tan(angle)
