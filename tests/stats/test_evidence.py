"""E-values against sums over all outcomes, and error budgets against simulated series."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from hmx.stats.evidence import e_value, power, stakes


@pytest.mark.parametrize("sizes", [(1, 2, 3, 4), (5, 1, 5, 5, 2), (0.1, 7, 7, 3, 2, 9)])
def test_its_mean_over_all_signs_is_one(sizes: tuple[float, ...]) -> None:
    """If gains and losses of each size are equally probable, its expectation is 1, whatever the sizes are."""
    values = [
        e_value([sign * size for sign, size in zip(signs, sizes, strict=True)])
        for signs in itertools.product((1, -1), repeat=len(sizes))
    ]
    assert math.fsum(values) / len(values) == pytest.approx(1, abs=1e-12)
    assert min(values) > 0


def test_each_pair_leaves_an_expectation_of_one() -> None:
    """So the value may be looked at after each pair: the next one does not raise it on average."""
    before = [3.0, -1.0, 2.0]
    for size in (0.5, 1.0, 2.5, 9.0):
        mean = (e_value([*before, size]) + e_value([*before, -size])) / 2
        assert mean == pytest.approx(e_value(before), rel=1e-12)


def test_values_of_the_formula() -> None:
    """One gain: its rank is the middle one, so its score is the half-normal median 0.67449."""
    score = 0.6744897501960817
    expected = (2 / (1 + math.exp(-2 * score)) + 2 / (1 + math.exp(-6 * score))) / 2
    assert e_value([7.0]) == pytest.approx(expected, rel=1e-12)
    assert e_value([-7.0]) == pytest.approx(2 - expected, rel=1e-12)
    assert e_value([]) == e_value([0.0, 0.0]) == 1
    assert e_value([1.0, 0.0, 2.0]) == e_value([1.0, 2.0])


def test_only_the_order_of_the_sizes_counts() -> None:
    gains = [0.3, -0.1, 0.7, 1.1, -0.9]
    assert e_value([math.copysign(abs(gain) ** 3, gain) for gain in gains]) == e_value(gains)
    assert e_value([2.0, -1.0]) > e_value([1.0, -2.0])


def test_no_pairs_raise_it_more_than_those_that_futility_assumes() -> None:
    draw, before = random.Random(0), [1.0, -2.0, 0.5]
    most = e_value(before, 4)
    assert e_value([*before, 3.0, 4.0, 5.0, 6.0]) == pytest.approx(most, rel=1e-12)
    assert max(e_value([*before, *(draw.gauss(0, 3) for _ in range(4))]) for _ in range(300)) <= most


def test_a_lost_pair_is_worth_no_more_than_any_loss() -> None:
    """So nothing is gained by a run that fails, or is ended, where its result would be bad."""
    draw = random.Random(0)
    for count in range(20):
        before = [draw.gauss(0, 1) for _ in range(count)]
        for lost in (1, 3):
            losses = [-abs(draw.gauss(0, 9)) for _ in range(lost)]
            assert e_value(before, -lost) <= e_value([*before, *losses])


@pytest.mark.parametrize("pairs, effect, low, high", [(16, 0.5, 0.02, 0.04), (16, 1, 0.17, 0.25), (16, 2, 0.83, 0.88),
                                                      (32, 1, 0.6, 0.66), (32, 2, 1, 1)])  # fmt: skip
def test_power_is_that_of_the_measured_campaigns(pairs: int, effect: float, low: float, high: float) -> None:
    """The first attempt of a campaign, in docs/gate.md; 400 samples have a standard error of 0.025 at most."""
    assert low - 0.05 <= power(effect, 0.05 / 11, pairs) <= high + 0.05


def test_large_samples_do_not_overflow() -> None:
    assert e_value([1.0] * 400) > 1e80
    assert e_value([-1.0] * 400) >= 0


def test_levels_sum_up_to_the_budget() -> None:
    """Without returns the levels are budget half / ((half + count - 1) (half + count))."""
    levels, left = stakes(0.05, 10, [0.0] * 1000)
    assert left == pytest.approx(0.05 * 10 / 1010)
    assert levels[0] == pytest.approx(0.05 * 10 / (10 * 11))
    assert levels[49] == pytest.approx(0.05 * 10 / (59 * 60))
    assert math.fsum(levels[:10]) == pytest.approx(0.05 / 2)
    assert math.fsum(levels) < 0.05
    assert math.fsum(levels) == pytest.approx(0.05, rel=0.02)


def test_stakes_come_back() -> None:
    """A test that rejects gets its stake back; one that ends with the e-value e gets min(e, 1) of it."""
    (first, second, third), left = stakes(0.05, 10, [None, 0.25])
    assert second == first == 0.05 / 11
    assert third == pytest.approx((0.05 - first * 0.75) / 12)
    assert left == 0.05 - first * 0.75
    assert stakes(0.05, 10, [None, 7.0])[1] == 0.05  # and not 0.05 / 11 * 11
    assert stakes(0.05, 10, [7.0])[0][1] == pytest.approx(0.05 / 12)


@pytest.mark.thorough
def test_campaigns_without_an_effect_keep_a_change_at_the_rate_of_the_budget() -> None:
    """Attempts of up to 30 pairs that stop at a verdict, futility included: at most 20 % of campaigns err."""
    draw, budget, errors, campaigns = random.Random(1), 0.2, 0, 400
    for _ in range(campaigns):
        outcomes: list[float | None] = []
        for _ in range(8):
            level, gains = stakes(budget, 3, outcomes)[0][-1], list[float]()
            while len(gains) < 30:
                gains.append(draw.gauss(0, 1))
                if e_value(gains) * level >= 1 or e_value(gains, 30 - len(gains)) * level < 1:
                    break
            found = e_value(gains)
            if found * level >= 1:
                errors += 1
                break
            outcomes.append(found)
    assert errors / campaigns <= budget + 3 * math.sqrt(budget * (1 - budget) / campaigns)
    assert errors  # the budget is used
