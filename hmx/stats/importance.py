"""The share of the differences between results that each of several options explains alone.

The share is the first-order sensitivity index of Sobol' (1993), Var(E[y | x]) / Var(y), of the ranks of the results
(Saltelli and Sobol' 1995): ranks give a diverged trial no more weight than a bad one. E[y | x] is a cubic polynomial
of the ranks of an ordered option, so that its scale does not matter, and the mean of each level of any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.polynomial import legendre

from hmx.stats.estimate import Estimate
from hmx.stats.intervals import LEVEL, Floats
from hmx.stats.ranks import ranks

MIN_TRIALS = 10

_DEGREE = 3
_TRIALS_PER_TERM = 3  # with fewer, the fit follows single trials
_RESAMPLES = 1000
_BLOCK = 1 << 22  # numbers that are held at once


class Factor(NamedTuple):
    """An option: its value in every trial; levels without an order are numbered."""

    values: Floats  # [trials]
    ordered: bool


class Importance(NamedTuple):
    """The share of the variance of the ranks that an option explains alone, from 0 to 1, and its p-value.

    The p-value is the probability that an option without effect explains as much. It counts that the largest of several
    shares stands out: it is that of the largest share of all options under permutation (Westfall and Young 1993).
    """

    share: Estimate
    p_value: float


def importances(factors: Sequence[Factor], results: Floats, seed: int = 0) -> list[Importance | None]:
    """Estimate the importance of each option; None for one that cannot be judged.

    The share is corrected for the terms of the fit, as an adjusted R². Its interval is a percentile bootstrap over
    trials; a resample fits its trials closer by as much as the sample does, so its share is corrected twice. In
    simulations with 12 to 200 trials, intervals of 95 % contained the share of the best cubic in 88 % or more. For an
    effect that no cubic follows, that share is below the index of Sobol', which they then miss.

    Args:
        factors: options, each with a value per trial.
        results: results of the trials, `[trials]`; only their order counts.
        seed: seed of the resamples and permutations.
    """
    count = len(results)
    scores = ranks(results) - (count + 1) / 2
    judged = count >= MIN_TRIALS and scores.any()
    designs = [_design(factor) if judged else None for factor in factors]
    usable = [design for design in designs if design is not None]
    if not usable:
        return [None] * len(factors)
    largest = _largest_permuted(usable, scores, seed)
    return [None if design is None else _importance(design, scores, largest, seed) for design in designs]


def _importance(design: Floats, scores: Floats, largest: Floats, seed: int) -> Importance:
    share = float(_share(design, scores[None])[0])
    p_value = (1 + int((largest >= share - 1e-12).sum())) / (1 + len(largest))
    return Importance(Estimate(max(share, 0.0), *_interval(design, scores, seed)), p_value)


def _design(factor: Factor) -> Floats | None:
    """Return the terms of the fit `[trials, terms]`, centred; None with a single level or too many terms."""
    levels = np.unique(factor.values)
    count = len(factor.values)
    if factor.ordered and len(levels) > _DEGREE + 1:
        places = 2 * (ranks(factor.values) - 0.5) / count - 1
        terms = legendre.legvander(places, _DEGREE)[:, 1:]
    else:
        terms = (factor.values[:, None] == levels[None, 1:]).astype(np.float64)
    if not terms.shape[1] or terms.shape[1] * _TRIALS_PER_TERM > count:
        return None
    return np.asarray(terms - terms.mean(0))


def _share(design: Floats, scores: Floats) -> Floats:
    """Return the adjusted R² of each row of centred scores `[n, trials]`."""
    basis = np.linalg.qr(design)[0]
    return _adjusted(((scores @ basis) ** 2).sum(-1) / (scores**2).sum(-1), *design.shape)


def _adjusted(explained: Floats, count: int, terms: int) -> Floats:
    """Subtract from a share what a fit of so many terms explains of noise."""
    return 1 - (1 - explained) * (count - 1) / (count - terms - 1)


def _largest_permuted(designs: Sequence[Floats], scores: Floats, seed: int) -> Floats:
    """Return the largest share of all options for each permutation of the results."""
    draw = np.random.default_rng(seed)
    largest = []
    for rows in _blocks(len(scores)):
        mixed = scores[draw.random((rows, len(scores))).argsort(-1)]
        largest.append(np.max([_share(design, mixed) for design in designs], axis=0))
    return np.concatenate(largest)


def _interval(design: Floats, scores: Floats, seed: int) -> tuple[float, float]:
    draw = np.random.default_rng(seed)
    count, terms = design.shape
    columns = np.column_stack([np.ones(count), design, scores])
    products = (columns[:, :, None] * columns[:, None, :]).reshape(count, -1)
    found = []
    for rows in _blocks(count):
        weights = draw.multinomial(count, np.full(count, 1 / count), size=rows).astype(np.float64)
        moments = (weights @ products).reshape(rows, terms + 2, terms + 2)
        sums = moments[:, 0]
        centred = moments - sums[:, :, None] * sums[:, None, :] / count
        mixed, total = centred[:, 1:-1, -1], centred[:, -1, -1]
        # A level may be missing from a resample, so the inverse is a pseudoinverse.
        inverse = np.linalg.pinv(centred[:, 1:-1, 1:-1], rcond=1e-9, hermitian=True)
        explained = (mixed[:, None] @ inverse @ mixed[:, :, None])[:, 0, 0]
        shares = explained[total > 0] / total[total > 0]
        found.append(_adjusted(_adjusted(shares, count, terms), count, terms))
    low, high = np.clip(np.quantile(np.concatenate(found), ((1 - LEVEL) / 2, (1 + LEVEL) / 2)), 0.0, 1.0)
    return float(low), float(high)


def _blocks(width: int) -> Iterator[int]:
    """Yield numbers of resamples that add up to all, each as many as fit into memory."""
    rows = max(1, _BLOCK // width)
    for start in range(0, _RESAMPLES, rows):
        yield min(rows, _RESAMPLES - start)
