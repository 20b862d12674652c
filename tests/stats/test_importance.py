"""The importance of options, on functions whose first-order shares are known in closed form."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from hmx.stats import importance
from hmx.stats.importance import MIN_TRIALS, Factor, importances

LEVELS = (np.arange(40) + 0.5) / 40
SUM_SHARE = 103 / 210
"""Of x1 in the ranks of x1 + x2: 12 Var(x1 / 2 + x1^2 / 2 - x1^3 / 3), both uniform on 0 to 1."""


@pytest.fixture
def few_resamples(monkeypatch) -> None:
    """Resample 100 times, for tests of many samples."""
    monkeypatch.setattr(importance, "_RESAMPLES", 100)


def share(values, results, ordered=True) -> float:
    """The share of a single option."""
    (found,) = importances([Factor(np.asarray(values, np.float64), ordered)], np.asarray(results, np.float64))
    assert found is not None
    return found.share.value


def test_each_of_two_summands_has_its_exact_share() -> None:
    one, other = (values.ravel() for values in np.meshgrid(LEVELS, LEVELS))
    third = np.random.default_rng(0).random(one.size)
    first, second, none = importances([Factor(x, True) for x in (one, other, third)], one + other)
    assert first and second and none
    assert first.share.value == pytest.approx(SUM_SHARE, abs=0.003)
    assert second.share.value == pytest.approx(SUM_SHARE, abs=0.003)
    assert first.share.low < SUM_SHARE < first.share.high
    assert none.share.value < 0.005
    assert first.p_value == second.p_value == pytest.approx(1 / 1001)
    assert none.p_value > 0.05


def test_a_choice_that_separates_results_has_three_quarters() -> None:
    # Half of the ranks lie above the others: Var(means) / Var = (1 / 4)^2 / (1 / 12).
    choice = np.repeat([0.0, 1.0], 1000)
    results = choice + 0.5 * np.random.default_rng(0).random(2000)
    assert share(choice, results, ordered=False) == pytest.approx(0.75, abs=0.001)


def test_a_choice_of_three_levels_is_not_ordered() -> None:
    # The middle level is best: no straight line, but means that differ.
    choice = np.tile([0.0, 1.0, 2.0], 100)
    assert share(choice, choice == 1, ordered=False) == pytest.approx(1.0)


def test_options_that_act_only_together_have_no_share() -> None:
    pairs = np.array(list(itertools.product([0.0, 1.0], repeat=2)) * 25)
    for found in importances([Factor(pairs[:, 0], False), Factor(pairs[:, 1], False)], pairs[:, 0] != pairs[:, 1]):
        assert found and found.share.value == 0.0 and found.p_value > 0.05


def test_share_does_not_depend_on_the_scale_of_option_or_result() -> None:
    draw = np.random.default_rng(0)
    values = draw.random(60)
    results = -((values - 0.4) ** 2) + 0.05 * draw.standard_normal(60)
    assert share(values, results) == pytest.approx(share(10 ** (5 * values), np.exp(9 * results)))


def test_one_far_outlier_does_not_change_the_share() -> None:
    values = np.arange(30.0)
    results = np.arange(30.0)
    results[0] = -1e9
    assert share(values, results) == pytest.approx(1.0)


def test_options_without_effect_rarely_stand_out(few_resamples) -> None:
    draw = np.random.default_rng(0)
    smallest = [
        min(
            found.p_value
            for found in importances([Factor(x, True) for x in draw.random((5, 20))], draw.random(20))
            if found
        )
        for _ in range(100)
    ]
    # 5 % are expected; more than 11 of 100 happen with probability 0.004.
    assert sum(p <= 0.05 for p in smallest) <= 11


@pytest.mark.parametrize("trials", [16, 60])
def test_intervals_contain_the_true_share(trials, few_resamples) -> None:
    draw = np.random.default_rng(1)
    hits = 0
    for _ in range(100):
        one, other = draw.random((2, trials))
        (found,) = importances([Factor(one, True)], one + other)
        assert found
        hits += found.share.low <= SUM_SHARE <= found.share.high
    assert hits >= 85


def test_intervals_of_an_option_without_effect_begin_at_zero(few_resamples) -> None:
    draw = np.random.default_rng(2)
    found = [importances([Factor(draw.random(16), True)], draw.random(16))[0] for _ in range(100)]
    assert sum(one is not None and one.share.low == 0.0 for one in found) >= 90


@pytest.mark.parametrize(
    ("values", "results"),
    [
        (np.arange(MIN_TRIALS - 1.0), np.arange(MIN_TRIALS - 1.0)),
        (np.ones(40), np.arange(40.0)),
        (np.arange(40.0), np.ones(40)),
    ],
    ids=["too few trials", "an option that never varies", "equal results"],
)
def test_importance_is_unknown(values, results) -> None:
    assert importances([Factor(values, True)], results) == [None]


def test_a_choice_with_almost_as_many_levels_as_trials_is_unknown() -> None:
    assert importances([Factor(np.arange(20.0), False)], np.arange(20.0)) == [None]
