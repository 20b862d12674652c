"""Statistics of consequence scores: their distribution, and their rank correlation with other values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

Host = np.ndarray[Any, Any]

QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
MIDDLE = (0.05, 0.5)  # of the largest spread
_BINS_PER_DECADE = 3
_DECADES = 6
_MOST_DRAWS = 2e7  # random numbers of a bootstrap
_RESAMPLES = 1000


class Bin(NamedTuple):
    """A bin of a histogram: values from `low` up to `high`."""

    low: float
    high: float
    count: int  # type: ignore[assignment]


class Correlation(NamedTuple):
    """Spearman's rank correlation with a 95 % interval; None if either side is constant."""

    value: float | None
    low: float | None = None
    high: float | None = None


def quantiles(values: Host) -> dict[str, float]:
    """Return quantiles by name, such as `p5`, interpolated between neighbours."""
    found = np.quantile(values.astype(np.float64), QUANTILES)
    return {f"p{100 * q:g}": float(x) for q, x in zip(QUANTILES, found, strict=True)}


def tied_share(values: Host) -> float:
    """Return the share of the values that occur more than once."""
    _, counts = np.unique(values, return_counts=True)
    return float(counts[counts > 1].sum() / values.size)


def gini(values: Host) -> float | None:
    """Return the Gini coefficient of values that are not negative: 0 if all are equal, near 1 if one has the sum.

    None if all are 0.
    """
    ordered = np.sort(values.astype(np.float64))
    total = ordered.sum()
    if not total > 0.0:
        return None
    rank = np.arange(1, len(ordered) + 1)
    return float((2 * rank - len(ordered) - 1) @ ordered / (len(ordered) * total))


def log_histogram(values: Host) -> tuple[int, list[Bin]]:
    """Return how many values are 0, and bins of equal ratio for the others, three per decade.

    Values more than six decades below the largest are in the lowest bin.
    """
    positive = values[values > 0.0].astype(np.float64)
    if not positive.size:
        return int(values.size), []
    last = int(np.floor(_BINS_PER_DECADE * np.log10(positive.max())))
    first = max(int(np.floor(_BINS_PER_DECADE * np.log10(positive.min()))), last - _DECADES * _BINS_PER_DECADE)
    place = np.clip(np.floor(_BINS_PER_DECADE * np.log10(positive)).astype(int), first, last) - first
    counts = np.bincount(place, minlength=last - first + 1)
    edges = 10.0 ** (np.arange(first, last + 2) / _BINS_PER_DECADE)
    bins = [Bin(float(edges[i]), float(edges[i + 1]), int(count)) for i, count in enumerate(counts)]
    return int(values.size - positive.size), bins


def ranks(values: Sequence[float] | Host) -> Host:
    """Return ranks from 1; equal values share the mean of their ranks."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    middle: Host = (ends - counts + 1 + ends) / 2
    return middle[inverse.reshape(-1)]


def spearman(a: Host, b: Host) -> float | None:
    """Return Spearman's rank correlation; None if either side is constant."""
    x, y = ranks(a) - (len(a) + 1) / 2, ranks(b) - (len(b) + 1) / 2
    spread = np.sqrt(x @ x) * np.sqrt(y @ y)
    return float(np.clip(x @ y / spread, -1.0, 1.0)) if spread > 0.0 else None


def correlation(a: Host, b: Host, seed: int = 0) -> Correlation:
    """Return Spearman's correlation with a percentile bootstrap interval (Efron 1979), reproducible by its seed."""
    value, size = spearman(a, b), len(a)
    if value is None or size < 3:
        return Correlation(value)
    draw = np.random.default_rng(seed)
    resamples = int(np.clip(_MOST_DRAWS // size, 50, _RESAMPLES))
    found = [spearman(a[index], b[index]) for index in (draw.integers(size, size=size) for _ in range(resamples))]
    known = [x for x in found if x is not None]
    if not known:
        return Correlation(value)
    low, high = np.quantile(known, (0.025, 0.975))
    return Correlation(value, float(low), float(high))


def middle_share(spread: Host) -> float | None:
    """Return the share of positions whose spread is 5 to 50 % of the largest one."""
    largest = float(spread.max())
    if not largest > 0.0:
        return None
    return float(((spread >= MIDDLE[0] * largest) & (spread <= MIDDLE[1] * largest)).mean())
