"""Sample sizes: exact null distribution, simulated power, and limits."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

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


def test_power_is_the_share_of_comparisons_with_a_small_p_value():
    draw = np.random.default_rng(1)
    hits = [stats.p_value([draw.normal(size=5) + 2.0], [draw.normal(size=5)]) <= 0.05 for _ in range(400)]
    improvement = 0.5 * (1 + math.erf(2.0 / 2))  # of normal scores two standard deviations apart
    assert stats.power(5, improvement) == pytest.approx(np.mean(hits), abs=0.06)


def test_equal_sides_differ_no_more_often_than_stated():
    for runs in (4, 5, 10):
        assert 0 < stats.power(runs, 0.5) < 0.053
    assert stats.power(3, 0.99) == 0.0


@pytest.mark.parametrize(("improvement", "runs"), [(0.76, 19), (0.856, 10), (0.921, 6), (0.983, 4)])
def test_runs_needed_are_the_fewest_with_enough_power(improvement, runs):
    assert stats.runs_needed(improvement) == runs
    assert stats.power(runs, improvement) >= 0.8
    assert runs == stats.fewest_runs() or stats.power(runs - 1, improvement) < 0.8


def test_many_runs_follow_noether():
    assert stats.runs_needed(0.55) == math.ceil((1.959964 + 0.841621) ** 2 / (6 * 0.05**2)) == 524
    assert stats.detectable_improvement(524) == pytest.approx(0.55, abs=1e-3)


def test_detectable_improvement_agrees_with_runs_needed_and_is_continuous():
    assert stats.detectable_improvement(3) is None
    assert stats.runs_needed(stats.detectable_improvement(5)) == 5
    assert stats.detectable_improvement(40) == pytest.approx(stats.detectable_improvement(41), abs=0.01)


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
