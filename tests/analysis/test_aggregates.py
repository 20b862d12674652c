"""Aggregates over seeds and tasks: hand-worked cases, numbers of rliable 1.2.0, and what intervals promise."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmx.stats import aggregates as agg

# Five and four runs on two tasks.
X = [np.array([0.1, 0.4, 0.9, 0.6, 0.3]), np.array([0.5, 0.7, 0.2, 0.8, 1.1])]
Y = [np.array([0.2, 0.3, 0.5, 0.1]), np.array([0.4, 0.6, 0.2, 0.9])]
TAUS = [0.0, 0.25, 0.5, 0.75, 1.0]


def test_aggregates_are_those_of_rliable():
    """Of rliable 1.2.0: aggregate_iqm, aggregate_mean, aggregate_median, aggregate_optimality_gap."""
    for strata, expected in ((X, (0.55, 0.56, 0.56, 0.45)), (Y, (0.35, 0.4, 0.4, 0.6))):
        found = (
            agg.interquartile_mean(strata),
            agg.mean(strata),
            agg.median(strata),
            agg.optimality_gap(strata),
        )
        assert found == pytest.approx(expected, rel=1e-12)


def test_probability_of_improvement_and_profile_are_those_of_rliable():
    assert agg.improvement([*X, *Y]) == pytest.approx(0.6625, rel=1e-12)
    assert agg.improvement([*Y, *X]) == pytest.approx(0.3375, rel=1e-12)
    assert agg.profile(X, TAUS) == pytest.approx([1.0, 0.8, 0.5, 0.3, 0.1])


def test_fewer_than_four_scores_are_not_trimmed():
    assert agg.interquartile_mean([np.array([1.0, 2.0, 3.0])]) == 2.0
    assert agg.interquartile_mean([np.array([-100.0, 2.0, 3.0, 100.0])]) == 2.5


def test_all_27_redraws_of_three_runs_are_taken():
    scores = np.array([0.2, 0.5, 0.9])
    found = agg.estimate([scores], agg.mean, samples=27)
    assert found == pytest.approx((0.5333333333333333, 0.265, 0.813333333333333), rel=1e-12)
    by_hand = [np.mean(chosen) for chosen in itertools.product(scores, repeat=3)]
    assert found[1:] == pytest.approx(tuple(np.quantile(by_hand, [0.025, 0.975])), rel=1e-12)
    by_chance = agg.estimate([scores], agg.mean, samples=26)
    assert by_chance != found


def test_a_drawn_interval_comes_close_to_that_of_all_redraws():
    scores = np.array([0.2, 0.5, 0.9, 0.7])
    exact = agg.estimate([scores], agg.mean, samples=256)
    drawn = agg.estimate([np.array([*scores])], agg.mean, samples=255, seed=3)
    assert drawn[1:] == pytest.approx(exact[1:], abs=0.06)
    blocks = [block for (block,) in agg.redraws([8], 20_000, 0)]
    assert np.concatenate(blocks).mean() == pytest.approx(3.5, abs=0.02)


def test_all_redraws_of_two_strata_are_each_taken_once():
    (block,) = agg.redraws([2, 3], 108, seed=0)
    pairs = {(tuple(a), tuple(b)) for a, b in zip(*block, strict=True)}
    assert len(pairs) == 4 * 27 == len(block[0])


def test_blocks_do_not_change_what_is_drawn_exhaustively(monkeypatch):
    whole = agg.estimate([X[0], Y[0][:2]], agg.difference(agg.mean))
    monkeypatch.setattr(agg, "_BLOCK", 64)
    assert agg.estimate([X[0], Y[0][:2]], agg.difference(agg.mean)) == whole


def test_the_same_seed_gives_the_same_numbers():
    strata = [*X, *Y]
    first = agg.estimate(strata, agg.improvement, samples=500, seed=7)
    assert agg.estimate(strata, agg.improvement, samples=500, seed=7) == first
    assert agg.estimate(strata, agg.improvement, samples=500, seed=8) != first


def test_one_run_has_no_interval():
    assert agg.estimate([np.array([3.0])], agg.mean) == (3.0, None, None)
    assert not agg.Estimate(3.0).excludes_zero
    centre, low, high = agg.band(np.array([[1.0, 2.0]]))
    assert list(centre) == [1.0, 2.0] and low is None and high is None


def test_a_band_is_an_interval_at_every_point():
    curves = np.array([[0.0, 1.0], [2.0, 5.0], [4.0, 9.0], [6.0, 1.0]])
    centre, low, high = agg.band(curves, samples=256)
    for i in range(2):
        assert (centre[i], low[i], high[i]) == pytest.approx(
            agg.estimate([curves[:, i]], agg.interquartile_mean, samples=256)
        )


def test_only_an_interval_on_one_side_of_zero_excludes_it():
    assert agg.Estimate(1.0, 0.1, 2.0).excludes_zero and agg.Estimate(-1.0, -2.0, -0.1).excludes_zero
    assert not agg.Estimate(1.0, 0.0, 2.0).excludes_zero and not agg.Estimate(1.0, -0.1, 2.0).excludes_zero


def test_the_chance_of_a_difference_is_counted_over_all_deals():
    first, second = [np.array([5.0, 6.0, 7.0])], [np.array([1.0, 6.5])]
    pool = [*first[0], *second[0]]
    deals = list(itertools.combinations(range(5), 3))

    def clear(deal: tuple[int, ...]) -> float:
        pairs = [(pool[i], pool[j]) for i in deal for j in range(5) if j not in deal]
        return abs(np.mean([a > b for a, b in pairs]) - 0.5)

    share = sum(clear(deal) >= clear((0, 1, 2)) for deal in deals) / len(deals)
    assert agg.chance(first, second, samples=10) == pytest.approx(share) == 0.8
    assert agg.chance(first, second, samples=9) in [hits / 10 for hits in range(1, 11)]  # dealt at random


@pytest.mark.parametrize(("n", "m", "share"), [(2, 2, 2 / 6), (3, 3, 2 / 20), (4, 4, 2 / 70), (5, 2, 2 / 21)])
def test_sides_that_lie_apart_can_be_told_by_chance_alone(n, m, share):
    assert agg.chance([np.arange(n) + 10.0], [np.arange(m) + 0.0]) == pytest.approx(share)


def test_two_tasks_are_dealt_one_by_one():
    first, second = [np.array([3.0, 4.0]), np.array([30.0, 40.0])], [np.array([1.0, 2.0]), np.array([10.0, 20.0])]
    assert agg.chance(first, second, samples=36) == pytest.approx(2 / 36)


def test_dealing_at_random_comes_close_to_all_deals():
    first, second = X, [scores - 0.3 for scores in Y]
    exact = agg.chance(first, second, samples=126**2)
    assert agg.chance(first, second, samples=4000) == pytest.approx(exact, abs=0.02)


def test_equal_sides_differ_by_chance_always():
    assert agg.chance(X, X) == 1.0


_score = st.floats(-1e3, 1e3, allow_nan=False)
_strata = st.lists(st.lists(_score, min_size=2, max_size=6), min_size=1, max_size=3)


@given(_strata)
def test_an_interval_holds_between_the_extremes(lists):
    strata = [np.array(scores) for scores in lists]
    found = agg.estimate(strata, agg.interquartile_mean, samples=64)
    least, most = min(map(min, lists)), max(map(max, lists))
    margin = 1e-9 * (1 + abs(least) + abs(most))
    assert least - margin <= found.low <= found.high <= most + margin


@given(_strata)
def test_improvement_over_oneself_is_a_half_and_opposite_sides_add_up(lists):
    strata = [np.array(scores) for scores in lists]
    assert agg.improvement([*strata, *strata]) == pytest.approx(0.5)
    other = [scores[:1] + 1 for scores in strata]
    assert agg.improvement([*strata, *other]) + agg.improvement([*other, *strata]) == pytest.approx(1.0)


def test_redraws_keep_within_their_run_counts_however_many():
    blocks = list(agg.redraws([200, 3], 50, 0))
    assert sum(len(block[0]) for block in blocks) == 50
    for many, few in blocks:
        assert many.shape[1] == 200 and few.shape[1] == 3
        assert many.max() < 200 and few.max() < 3
    assert math.isfinite(agg.estimate([np.arange(300.0)], agg.mean, samples=10).low)


def test_it_needs_no_jax():
    code = "import sys, hmx.stats.aggregates; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
