"""Sample sizes: exact null distribution, simulated power, and limits."""

from __future__ import annotations

import itertools
import math
from statistics import NormalDist

import numpy as np
import pytest
import scipy.special
import scipy.stats

from hmx import stats
from hmx.errors import HmxError
from hmx.stats import sizes


def test_numbers_of_wins_are_counted_exactly():
    counts = [0] * 10
    for first in itertools.combinations(range(6), 3):
        other = [i for i in range(6) if i not in first]
        counts[sum(a > b for a in first for b in other)] += 1
    assert sizes._ways(3) == counts
    assert sum(sizes._ways(9)) == math.comb(18, 9)


@pytest.mark.parametrize(("significance", "runs"), [(0.05, 4), (0.01, 5), (0.5, 2)])
def test_fewest_runs_are_those_whose_separate_sides_differ(significance, runs):
    def smallest(n: int) -> float:
        return stats.p_value([np.arange(n) + 10.0], [np.arange(n) + 0.0])

    assert stats.fewest_runs(significance) == runs
    assert smallest(runs) <= significance < smallest(runs - 1)


def _verdicts(first: np.ndarray, second: np.ndarray) -> float:
    """Returns the share of comparisons `[comparisons, runs]` with a p-value of 5 % and an interval without 0."""
    draw, runs = np.random.default_rng(2), first.shape[1]
    found = scipy.stats.mannwhitneyu(first, second, axis=-1).pvalue <= 0.05
    for i in np.flatnonzero(found):
        again = (np.sort(side[i][draw.integers(runs, size=(1000, runs))]) for side in (first, second))
        one, other = (side[:, runs // 4 : runs - runs // 4].mean(-1) for side in again)
        low, high = np.quantile(one - other, (0.025, 0.975))
        found[i] = low > 0 or high < 0
    return float(found.mean())


@pytest.mark.parametrize(
    ("runs", "improvement", "kind"),
    [(5, 0.95, "normal"), (8, 0.88, "skewed"), (20, 0.75, "wins"), (36, 0.69, "normal")],
)  # fmt: skip
def test_power_is_the_share_of_comparisons_with_a_verdict(runs, improvement, kind):
    draw = np.random.default_rng(1)
    first, second = draw.normal(size=(2, 1500, runs))
    first += math.sqrt(2) * NormalDist().inv_cdf(improvement)
    if kind == "skewed":
        first, second = np.exp(first / 2), np.exp(second / 2)
    elif kind == "wins":  # of 1,000 episodes
        first, second = (draw.binomial(1000, scipy.special.expit(side)) / 1000 for side in (first, second))
    # the standard error of 1,500 comparisons is 0.01; power is that of normal scores
    assert stats.power(runs, improvement) == pytest.approx(
        _verdicts(first, second), abs=0.025 if kind == "normal" else 0.06
    )


def test_formula_for_many_runs_has_the_stated_power():
    draw = np.random.default_rng(1)
    runs = stats.runs_needed(0.65)
    first, second = draw.normal(size=(2, 1500, runs))
    assert 50 < runs < 70
    assert _verdicts(first + math.sqrt(2) * NormalDist().inv_cdf(0.65), second) == pytest.approx(0.8, abs=0.025)


def test_equal_sides_differ_no_more_often_than_stated():
    for runs in (4, 5, 10):
        assert 0 < stats.power(runs, 0.5) < 0.053
    assert stats.power(3, 0.99) == 0.0


@pytest.mark.parametrize(("improvement", "runs"), [(0.76, 21), (0.856, 10), (0.983, 4)])
def test_runs_needed_are_the_fewest_with_enough_power(improvement, runs):
    assert stats.runs_needed(improvement) == runs
    assert stats.power(runs, improvement) >= 0.8
    assert runs == stats.fewest_runs() or stats.power(runs - 1, improvement) < 0.8


def test_many_runs_follow_noether_with_a_factor():
    assert stats.runs_needed(0.55) == math.ceil(1.14 * (1.959964 + 0.841621) ** 2 / (6 * 0.05**2)) == 597
    assert stats.detectable_improvement(597) == pytest.approx(0.55, abs=1e-3)


def test_detectable_improvement_agrees_with_runs_needed_and_is_continuous():
    assert stats.detectable_improvement(3) is None
    assert stats.runs_needed(stats.detectable_improvement(5)) == 5
    assert stats.power(40, stats.detectable_improvement(41)) == pytest.approx(0.8, abs=0.03)


@pytest.mark.parametrize(
    "call",
    [
        lambda: stats.runs_needed(0.5),
        lambda: stats.runs_needed(1.0),
        lambda: stats.power(5, 0.4),
        lambda: stats.runs_needed(0.8, target=1.0),
        lambda: stats.fewest_runs(0.0),
        lambda: stats.interquartile_mean([0.1, 0.2]),
        lambda: stats.interquartile_mean([]),
        lambda: stats.mean_estimate([[1.0], []]),
        lambda: stats.p_value([[1.0]], [[1.0], [2.0]]),
        lambda: stats.improvement([[1.0], [2.0], [3.0]]),
    ],
)
def test_wrong_arguments_are_refused_with_a_hint(call):
    with pytest.raises(HmxError, match="cannot") as caught:
        call()
    assert caught.value.hint
