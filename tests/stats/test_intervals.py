"""Statistics of one sample against published values."""

import math
import random
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmx.stats import intervals as stats

NUMBERS = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30)


@given(NUMBERS)
def test_mean_and_median_match_the_standard_library(values):
    assert stats.mean(values) == pytest.approx(statistics.fmean(values), rel=1e-12, abs=1e-9)
    assert stats.median(values) == pytest.approx(statistics.median(values), rel=1e-12, abs=1e-9)


def test_mean_sums_without_rounding():
    assert stats.mean([1e16, 1.0, -1e16]) == 1 / 3


@pytest.mark.parametrize(
    ("size", "ranks"),  # published tables of ranks, such as Hahn and Meeker 1991, table A.17
    [(1, None), (5, None), (6, (1, 6)), (8, (1, 8)), (9, (2, 8)), (10, (2, 9)), (15, (4, 12)), (20, (6, 15))],
)
def test_median_interval_has_the_published_ranks(size, ranks):
    values = [float(rank) for rank in range(1, size + 1)]
    random.Random(0).shuffle(values)
    assert stats.median_interval(values) == ranks


@pytest.mark.parametrize(
    ("p", "freedom", "wanted"),
    [  # Abramowitz and Stegun, table 26.10, and exact forms for 1 and 2 degrees
        (0.975, 1, 12.706204736),
        (0.975, 2, 4.302652730),
        (0.975, 4, 2.776445105),
        (0.975, 9, 2.262157163),
        (0.975, 30, 2.042272456),
        (0.975, 999, 1.962341461),
        (0.995, 5, 4.032142984),
        (0.9, 10, 1.372183641),
        (0.025, 4, -2.776445105),
        (0.5, 7, 0.0),
    ],
)
def test_t_quantile_matches_tables(p, freedom, wanted):
    assert stats.t_quantile(p, freedom) == pytest.approx(wanted, rel=1e-8, abs=1e-8)


@given(st.floats(0.501, 0.9999))
def test_t_quantile_matches_closed_forms(p):
    assert stats.t_quantile(p, 1) == pytest.approx(math.tan(math.pi * (p - 0.5)), rel=1e-8)
    assert stats.t_quantile(p, 2) == pytest.approx((2 * p - 1) / math.sqrt(2 * p * (1 - p)), rel=1e-8)
    assert stats.t_quantile(p, 10**7) == pytest.approx(statistics.NormalDist().inv_cdf(p), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize(("p", "dof"), [(0.0, 3), (1.0, 3), (0.5, 0)])
def test_t_quantile_refuses_other_arguments(p, dof):
    with pytest.raises(ValueError, match="no quantile"):
        stats.t_quantile(p, dof)


def test_mean_interval_of_a_known_sample():
    # Student's sleep data, second drug: mean 2.33, sd 2.002249, n 10.
    values = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
    low, high = stats.mean_interval(values)
    assert (low, high) == pytest.approx((0.8976775, 3.7623225), abs=1e-6)
    assert stats.mean_interval([1.0]) is None
    assert stats.mean_interval([2.0, 2.0, 2.0]) == (2.0, 2.0)


@pytest.mark.parametrize(
    ("successes", "trials", "wanted"),
    [  # Newcombe 1998, table I, method 3
        (81, 263, (0.2553, 0.3662)),
        (15, 148, (0.0624, 0.1605)),
        (0, 20, (0.0, 0.1611)),
        (1, 29, (0.0061, 0.1718)),
        (20, 20, (0.8389, 1.0)),
    ],
)
def test_wilson_matches_published_intervals(successes, trials, wanted):
    assert stats.wilson(successes, trials) == pytest.approx(wanted, abs=5e-5)


def test_wilson_without_trials_and_with_too_many_successes():
    assert stats.wilson(0, 0) is None
    with pytest.raises(ValueError, match="3 successes in 2 trials"):
        stats.wilson(3, 2)


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), st.floats(0.5, 0.999))
def test_wilson_contains_the_rate_and_is_symmetric(counts, level):
    successes, trials = counts
    low, high = stats.wilson(successes, trials, level)
    assert 0 <= low <= successes / trials <= high <= 1
    mirrored = stats.wilson(trials - successes, trials, level)
    assert (1 - mirrored.high, 1 - mirrored.low) == pytest.approx((low, high), abs=1e-12)


def test_bootstrap_covers_at_about_its_level():
    draw = random.Random(1)
    hits = 0
    for i in range(100):
        sample = [draw.gauss(3, 2) for _ in range(40)]
        low, high = stats.bootstrap(sample, resamples=200, seed=i)
        hits += low <= 3 <= high
    assert 85 <= hits <= 99


def test_bootstrap_is_reproducible():
    values = [1.0, 2.0, 3.0, 4.0, 100.0]
    assert stats.bootstrap(values) == stats.bootstrap(values)
    assert stats.bootstrap(values, seed=1) != stats.bootstrap(values)
    narrow, wide = stats.bootstrap(values, level=0.5), stats.bootstrap(values, level=0.99)
    assert 1.0 <= wide.low <= narrow.low <= narrow.high <= wide.high <= 100.0
    assert stats.bootstrap([1.0]) is None


@pytest.mark.parametrize(
    ("successes", "low", "high"),  # Clopper and Pearson (1934), from the quantiles of beta distributions
    [(0, 0.0, 0.3085), (1, 0.0025, 0.4450), (2, 0.0252, 0.5561), (5, 0.1871, 0.8129), (10, 0.6915, 1.0)],
)
def test_bounded_interval_of_two_outcomes_is_exact(successes: int, low: float, high: float) -> None:
    values = [2.0] * (10 - successes) + [5.0] * successes
    found = stats.bounded_interval(values, stats.Interval(2.0, 5.0))
    assert found == pytest.approx((2 + 3 * low, 2 + 3 * high), abs=5e-3)


@pytest.mark.parametrize("size", [5, 64])
def test_bounded_interval_is_between_quantiles_of_random_weights(size: int) -> None:
    draw = np.random.default_rng(0)
    values = draw.pareto(2.0, size).clip(0.0, 20.0)
    weights = draw.dirichlet(np.ones(size + 1), 100_000)
    low = np.quantile(weights @ np.append(values, -1.0), 0.005)
    high = np.quantile(weights @ np.append(values, 20.0), 0.995)
    found = stats.bounded_interval(values, stats.Interval(-1.0, 20.0), 0.99)
    assert found == pytest.approx((low, high), rel=0.03)


def test_bounded_interval_holds_where_the_sample_misses_a_rare_value() -> None:
    values = [1.0] * 128  # and -99 with a probability of 1 %: the mean is 0
    low, high = stats.bounded_interval(values, stats.Interval(-99.0, 99.0), 0.99)
    assert low < 0.0 < 1.0 < high


def test_bounded_interval_without_values_or_spread_and_outside_the_bounds() -> None:
    assert stats.bounded_interval([], stats.Interval(0.0, 1.0)) is None
    assert stats.bounded_interval([3.0, 3.0], stats.Interval(3.0, 3.0)) == (3.0, 3.0)
    with pytest.raises(ValueError, match="not between"):
        stats.bounded_interval([0.5, 2.0], stats.Interval(0.0, 1.0))
