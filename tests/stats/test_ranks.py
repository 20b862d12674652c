"""Statistics of scores, against figures worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hmx.stats import ranks as stats


def test_quantiles_ties_and_gini():
    values = np.array([0, 0, 1, 3], np.float32)
    assert stats.quantiles(values)["p50"] == 0.5 and stats.quantiles(values)["p100"] == 3.0
    assert stats.tied_share(values) == 0.5
    assert stats.tied_share(np.arange(4.0)) == 0.0
    # half of the mean distance of two values over the mean: (1 + 3 + 1 + 3 + 2) * 2 / 16 / 2 / 1
    assert stats.gini(values) == pytest.approx(10 * 2 / 16 / 2)
    assert stats.gini(np.ones(5)) == pytest.approx(0.0)
    assert stats.gini(np.array([0.0, 0.0, 0.0, 7.0])) == pytest.approx(0.75)
    assert stats.gini(np.zeros(3)) is None


def test_histogram():
    zero, bins = stats.log_histogram(np.array([0.0, 0.0, 0.02, 0.5, 0.6, 1.0, 1e-9]))
    assert zero == 2 and sum(bin.count for bin in bins) == 5
    by_low = {round(bin.low, 4): bin.count for bin in bins}
    assert by_low[0.4642] == 2 and by_low[1.0] == 1 and by_low[0.01] == 1
    assert bins[0].count == 1 and bins[0].low == pytest.approx(1e-6)  # six decades below the largest
    assert [bin.high for bin in bins[:-1]] == [bin.low for bin in bins[1:]]
    assert stats.log_histogram(np.zeros(3)) == (3, [])


def test_ranks_and_correlations():
    np.testing.assert_array_equal(stats.ranks(np.array([5, 1, 5, 2])), [3.5, 1, 3.5, 2])
    rising = np.arange(50.0)
    assert stats.spearman(rising, rising**3) == pytest.approx(1.0)
    assert stats.spearman(rising, -rising) == pytest.approx(-1.0)
    # 1 - 6 (1 + 1) / (4 * 15)
    assert stats.spearman(np.array([1, 2, 3, 4]), np.array([2, 1, 3, 4])) == pytest.approx(0.8)
    assert stats.spearman(rising, np.ones(50)) is None
    found = stats.correlation(rising, np.sin(rising), seed=1)
    assert found == stats.correlation(rising, np.sin(rising), seed=1)
    assert found.low < found.value < found.high and found.high - found.low < 0.8
    assert stats.correlation(rising, np.ones(50)) == stats.Correlation(None)


@given(hnp.arrays(np.float64, st.integers(2, 30), elements=st.floats(0, 1e6)))
def test_statistics_have_their_properties_for_all_values(values):
    rank = stats.ranks(values)
    assert rank.sum() == pytest.approx(len(values) * (len(values) + 1) / 2)
    assert (np.argsort(rank, kind="stable") == np.argsort(values, kind="stable")).all()
    zero, bins = stats.log_histogram(values)
    assert zero + sum(bin.count for bin in bins) == len(values)
    gini = stats.gini(values)
    assert gini is None or -1e-9 <= gini < 1


def test_middle_share():
    assert stats.middle_share(np.array([1.0, 0.5, 0.04, 0.05])) == 0.5
    assert stats.middle_share(np.zeros(3)) is None
