"""Whether counts fit probabilities. Seeds are fixed, so a test that passes keeps passing until the game changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import gammaincc

SURPRISE = 1e-4  # p-value below which a deviation is no accident


def chi_square(observed: Any, expected: Any, free: int | None = None) -> float:
    """The p-value of counts against expected counts; cells of less than 5 expected are merged into one."""
    observed, expected = np.asarray(observed, float), np.asarray(expected, float)
    small = expected < 5
    if small.any():
        observed = np.append(observed[~small], observed[small].sum())
        expected = np.append(expected[~small], expected[small].sum())
        keep = expected > 0
        assert (observed[~keep] == 0).all(), "something impossible happened"
        observed, expected = observed[keep], expected[keep]
    distance = ((observed - expected) ** 2 / expected).sum()
    return float(gammaincc((free or len(expected) - 1) / 2, distance / 2))


def fits(values: Sequence[Any], probabilities: Mapping[Any, float]) -> float:
    """The p-value of a sample against a discrete distribution."""
    unknown = set(values) - set(probabilities)
    assert not unknown, f"impossible values {unknown}"
    counts = {k: 0 for k in probabilities}
    for value in values:
        counts[value] += 1
    total = sum(probabilities.values())
    return chi_square(list(counts.values()), [len(values) * p / total for p in probabilities.values()])


def uniform(values: Sequence[Any], over: Sequence[Any]) -> float:
    """The p-value of a sample against the uniform distribution."""
    return fits(values, dict.fromkeys(over, 1.0))


def spread(ranks: Sequence[tuple[int, int]], seed: int = 0, bins: int = 12) -> float:
    """The p-value that each rank r of (r, n) was drawn uniformly from range(n), with n varying."""
    noise = np.random.default_rng(seed).random(len(ranks))
    places = [(r + u) / n for (r, n), u in zip(ranks, noise, strict=True)]
    return chi_square(np.histogram(places, bins, (0, 1))[0], [len(ranks) / bins] * bins)
