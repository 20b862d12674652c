"""Aggregates over seeds and tasks: worked examples, and the coverage of the intervals."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmx import stats
from hmx.stats import aggregates as agg
from hmx.stats.intervals import mean_interval, t_quantile

# Five and four runs on two tasks.
X = [np.array([0.1, 0.4, 0.9, 0.6, 0.3]), np.array([0.5, 0.7, 0.2, 0.8, 1.1])]
Y = [np.array([0.2, 0.3, 0.5, 0.1]), np.array([0.4, 0.6, 0.2, 0.9])]


def test_fewer_than_four_scores_are_not_trimmed():
    assert agg.interquartile_mean([np.array([1.0, 2.0, 3.0])]) == 2.0
    assert agg.interquartile_mean([np.array([-100.0, 2.0, 3.0, 100.0])]) == 2.5


def test_mean_interval_of_one_task_is_students():
    assert agg.mean_estimate(X[:1])[1:] == pytest.approx(mean_interval(X[0].tolist()), rel=1e-12)


def test_mean_interval_of_two_tasks_is_welchs():
    """The mean of two tasks is half of a sum, whose interval is that of Welch (1947)."""
    x, y = X[0], Y[1]
    found = agg.mean_estimate([x, y])
    error = x.var(ddof=1) / 5 + y.var(ddof=1) / 4
    dof = error**2 / ((x.var(ddof=1) / 5) ** 2 / 4 + (y.var(ddof=1) / 4) ** 2 / 3)
    half = t_quantile(0.975, dof) * math.sqrt(error) / 2
    assert 6 < dof < 7 and found[1:] == pytest.approx((found.value - half, found.value + half), rel=1e-12)


def test_gap_interval_is_never_negative():
    found = agg.gap_estimate([np.array([1.2, 1.0, 0.9, 1.0])])
    assert found.value == pytest.approx(0.025) and found.low == 0.0 and found.high > 0.025


def test_bootstrap_approximates_all_resamples():
    scores = np.array([0.2, 0.5, 0.9, 0.7])
    means = [np.mean(chosen) for chosen in itertools.product(scores, repeat=4)]
    found = agg.bootstrap([scores], agg.interquartile_mean, 20_000)
    every = [agg.interquartile_mean([np.array(chosen)]) for chosen in itertools.product(scores, repeat=4)]
    assert found[1:] == pytest.approx(tuple(np.quantile(every, [0.025, 0.975])), abs=0.01)
    assert found.value == pytest.approx(0.6) and np.mean(means) == pytest.approx(0.575)


def test_bootstrap_does_not_depend_on_the_size_of_blocks(monkeypatch):
    whole = agg.bootstrap([*X, *Y], agg.improvement, 300)
    monkeypatch.setattr(agg, "_BLOCK", 10**9)
    assert agg.bootstrap([*X, *Y], agg.improvement, 300) == whole


def test_same_seed_gives_the_same_interval():
    strata = [*X, *Y]
    first = agg.bootstrap(strata, agg.improvement, 500, seed=7)
    assert agg.bootstrap(strata, agg.improvement, 500, seed=7) == first
    assert agg.bootstrap(strata, agg.improvement, 500, seed=8) != first


def test_a_single_run_has_no_interval():
    one = [np.array([3.0])]
    for found in (agg.mean_estimate(one), agg.iqm_estimate(one, 10), agg.bootstrap(one, agg.median)):
        assert found == (3.0, None, None) and not found.excludes_zero
    assert agg.iqm_difference(one, X[:1], 10).low is None
    center, low, high = agg.band(np.array([[1.0, 2.0]]))
    assert list(center) == [1.0, 2.0] and low is None and high is None


def test_band_is_an_interval_at_every_point():
    curves = np.array([[0.0, 1.0], [2.0, 5.0], [4.0, 9.0], [6.0, 1.0]])
    center, low, high = agg.band(curves, resamples=2000)
    for i in range(2):
        found = agg.iqm_estimate([curves[:, i]], 2000)
        assert (center[i], low[i], high[i]) == pytest.approx(found)


def test_excludes_zero_needs_both_ends_on_one_side():
    assert agg.Estimate(1.0, 0.1, 2.0).excludes_zero and agg.Estimate(-1.0, -2.0, -0.1).excludes_zero
    assert not agg.Estimate(1.0, 0.0, 2.0).excludes_zero and not agg.Estimate(1.0, -0.1, 2.0).excludes_zero


def test_mirrored_swaps_the_ends():
    assert agg.Estimate(0.7, 0.6, 0.9).mirrored(1.0) == pytest.approx((0.3, 0.1, 0.4))
    assert agg.Estimate(2.0).mirrored() == (-2.0, None, None)


def test_p_value_counts_all_permutations():
    first, second = [np.array([5.0, 6.0, 7.0])], [np.array([1.0, 6.5])]
    pool = [*first[0], *second[0]]
    ways = list(itertools.combinations(range(5), 3))

    def distance(way: tuple[int, ...]) -> float:
        pairs = [(pool[i], pool[j]) for i in way for j in range(5) if j not in way]
        return abs(np.mean([a > b for a, b in pairs]) - 0.5)

    share = sum(distance(way) >= distance((0, 1, 2)) for way in ways) / len(ways)
    assert agg.p_value(first, second, permutations=10) == pytest.approx(share) == 0.8
    assert agg.p_value(first, second, permutations=9) in [hits / 10 for hits in range(1, 11)]  # sampled


@pytest.mark.parametrize(("n", "m", "share"), [(2, 2, 2 / 6), (3, 3, 2 / 20), (4, 4, 2 / 70), (5, 2, 2 / 21)])
def test_separate_sides_have_the_smallest_p_value(n, m, share):
    assert agg.p_value([np.arange(n) + 10.0], [np.arange(m) + 0.0]) == pytest.approx(share)


def test_p_value_permutes_within_tasks():
    first, second = [np.array([3.0, 4.0]), np.array([30.0, 40.0])], [np.array([1.0, 2.0]), np.array([10.0, 20.0])]
    assert agg.p_value(first, second, permutations=36) == pytest.approx(2 / 36)


def test_sampled_p_value_approximates_the_exact_one():
    first, second = X, [scores - 0.3 for scores in Y]
    exact = agg.p_value(first, second, permutations=126**2)
    assert agg.p_value(first, second, permutations=4000) == pytest.approx(exact, abs=0.02)


def test_p_value_of_equal_sides_is_1():
    assert agg.p_value(X, X) == 1.0


# With 1,000 samples the standard error of a coverage is 0.007 at 95 % and 0.012 at 83 %.
_COVERAGE = [
    ("normal", 2, 0.95, 0.95), ("normal", 3, 0.95, 0.95), ("normal", 4, 0.95, 0.875), ("normal", 5, 0.95, 0.945),
    ("normal", 10, 0.95, 0.97), ("normal", 20, 0.95, 0.96),
    ("lognormal", 4, 0.83, 0.875), ("lognormal", 10, 0.84, 0.97),
]  # fmt: skip


@pytest.mark.parametrize(("returns", "seeds", "of_mean", "of_iqm"), _COVERAGE)
def test_intervals_cover_as_often_as_the_docs_state(returns, seeds, of_mean, of_iqm):
    scores = np.random.default_rng(seeds).normal(size=(1000, seeds))
    mean = trimmed = 0.0
    if returns == "lognormal":
        scores, mean, trimmed = np.exp(scores), math.exp(0.5), 1.0736  # the mean of the middle half of a lognormal
    center = trimmed if seeds >= 4 else mean
    found = [(agg.mean_estimate([row]), agg.iqm_estimate([row], 500)) for row in scores]
    assert np.mean([a.low <= mean <= a.high for a, _ in found]) == pytest.approx(of_mean, abs=0.03)
    assert np.mean([b.low <= center <= b.high for _, b in found]) == pytest.approx(of_iqm, abs=0.03)


@pytest.mark.parametrize(("seeds", "covers"), [(2, 0.975), (4, 0.93), (10, 0.95)])
def test_differences_cover_as_often_as_the_docs_state(seeds, covers):
    one, other = np.random.default_rng(seeds).normal(size=(2, 1000, seeds))
    found = [agg.iqm_difference([x], [y], 500) for x, y in zip(one, other, strict=True)]
    assert np.mean([not estimate.excludes_zero for estimate in found]) == pytest.approx(covers, abs=0.03)


_score = st.floats(-1e3, 1e3, allow_nan=False)
_strata = st.lists(st.lists(_score, min_size=2, max_size=6), min_size=1, max_size=3)


@given(_strata)
def test_bootstrap_interval_lies_between_the_extremes(lists):
    strata = [np.array(scores) for scores in lists]
    for expand in (False, True):
        found = agg.bootstrap(strata, agg.interquartile_mean, 64, expand=expand)
        least, most = min(map(min, lists)), max(map(max, lists))
        margin = 1e-9 * (1 + abs(least) + abs(most))
        assert least - margin <= found.low <= found.high <= most + margin


@given(_strata)
def test_improvement_over_itself_is_one_half_and_sides_sum_to_1(lists):
    strata = [np.array(scores) for scores in lists]
    assert agg.improvement([*strata, *strata]) == pytest.approx(0.5)
    other = [scores[:1] + 1 for scores in strata]
    assert agg.improvement([*strata, *other]) + agg.improvement([*other, *strata]) == pytest.approx(1.0)


def test_many_runs_are_resampled_in_blocks(monkeypatch):
    monkeypatch.setattr(agg, "_BLOCK", 10_000)
    blocks = list(agg._resamples([200, 3], 120, 0, width=203))
    assert [len(block[0]) for block in blocks] == [49, 49, 22]
    for many, few in blocks:
        assert many.shape[1] == 200 and few.shape[1] == 3
        assert many.max() < 200 and few.max() < 3


def test_importing_loads_neither_jax_nor_scipy():
    code = (
        "import sys; from hmx import stats; all(getattr(stats, name) for name in stats.__all__);"
        "print(stats.iqm_estimate([[0.1, 0.4, 0.2, 0.9]]).value);"
        "sys.exit(bool({'jax', 'jaxlib', 'scipy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "0.30000000000000004\n")


def test_importing_the_package_alone_loads_no_numpy():
    code = "import sys, hmx.stats, hmx.stats.estimate; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_public_names_have_docstrings():
    assert dir(stats) == sorted(stats.__all__)
    assert all(getattr(stats, name).__doc__ for name in stats.__all__)
