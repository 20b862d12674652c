"""Groups and buckets: worked splits, groups without variance, and what ranking must not depend on."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmx.algos.gradients.buckets import UNDEFINED, ZERO, group_advantages, merge_equal, reward_std, split

NAN = float("nan")


def sizes(score, num_buckets, **options):
    return [len(bucket.groups) for bucket in split(np.array(score, float), num_buckets, **options)]


@pytest.mark.parametrize(
    ("groups", "buckets", "expected"),
    [
        (10, 4, [2, 2, 2, 4]),
        (8, 6, [1, 1, 1, 1, 1, 3]),
        (11, 6, [1, 1, 1, 1, 1, 6]),
        (128, 6, [21, 21, 21, 21, 21, 23]),
        (3, 4, [1, 1, 1]),
        (1, 4, [1]),
        (5, 1, [5]),
    ],
)
def test_the_remainder_goes_to_the_last_bucket(groups, buckets, expected):
    assert sizes(np.arange(1, groups + 1), buckets) == expected


def test_undefined_and_zero_scores_have_their_own_buckets():
    score = np.array([0.3, 0, NAN, 0.1, 0, 0.5, 0.2, 0.4, 0.6, 0.7])
    assert split(score, 4, own_zero=False) == (
        ("bucket_1", (1, 4)), ("bucket_2", (3, 6)), ("bucket_3", (0, 7)), ("bucket_4", (5, 8, 9)), (UNDEFINED, (2,)),
    )  # fmt: skip
    assert split(score, 3) == (
        (ZERO, (1, 4)), ("bucket_1", (3, 6)), ("bucket_2", (0, 7)), ("bucket_3", (5, 8, 9)), (UNDEFINED, (2,)),
    )  # fmt: skip


def test_split_without_ranked_groups():
    assert split(np.array([0.0, 0.0]), 4) == ((ZERO, (0, 1)),)
    assert split(np.array([NAN]), 4) == ((UNDEFINED, (0,)),)
    assert split(np.array([]), 4) == ()


@given(st.lists(st.sampled_from([0.0, NAN, 0.25, 0.5, 1.0, 2.0]), max_size=40), st.integers(1, 8), st.booleans())
def test_a_split_is_a_partition_in_order(score, num_buckets, own_zero):
    score = np.array(score, float)
    buckets = split(score, num_buckets, own_zero)
    assert sorted(g for bucket in buckets for g in bucket.groups) == list(range(len(score)))
    ranked = [bucket for bucket in buckets if bucket.name not in (ZERO, UNDEFINED)]
    values = [score[g] for bucket in ranked for g in bucket.groups]
    assert values == sorted(values)
    assert not any(math.isnan(v) or (own_zero and v == 0) for v in values)
    assert len(ranked) == min(num_buckets, len(values))
    assert len({len(bucket.groups) for bucket in ranked[:-1]}) <= 1


@given(st.permutations(range(6)))
def test_tied_groups_stay_between_lower_and_higher_scores(order):
    score = np.array([0.5, 0.1, 0.5, 0.1, 0.9, 0.5])
    names = [{g: b.name for b in split(score[list(at)], 3) for g in b.groups} for at in (order, range(6))]
    for here, g in enumerate(order):
        if score[g] != 0.5:  # three of these fill one bucket and a part of the next
            assert names[0][here] == names[1][g]


def test_reward_std_is_the_sample_standard_deviation():
    std = reward_std(np.array([[0.0, 1.0], [1.0, 1.0], [3.0, NAN], [2.0, 4.0]]))
    np.testing.assert_allclose(std[[0, 1, 3]], [math.sqrt(0.5), 0.0, math.sqrt(2.0)], rtol=1e-12)
    assert np.isnan(std[2])
    assert np.isnan(reward_std(np.ones((2, 1)))).all()


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("members", [2, 3, 5, 6, 7, 12])
def test_equal_returns_have_exactly_no_advantage(members, scaled):
    """The mean of K equal float32 numbers is often one rounding away from them, and 0 / 0 is not far."""
    values = np.float32(np.linspace(-20, 20, 401))
    returns = np.repeat(values[:, None], members, axis=1).astype(np.float64)
    assert (reward_std(returns) == 0.0).all()
    assert (group_advantages(returns, scaled) == 0.0).all()
    returns[:, 0] *= 1 + 1e-7  # the same rewards, added up in another order
    assert (reward_std(returns) == 0.0).all()
    assert (group_advantages(returns, scaled) == 0.0).all()


def test_buckets_do_not_depend_on_scale_or_shift_of_returns():
    returns = np.random.default_rng(0).normal(size=(12, 5))
    shift = np.random.default_rng(1).normal(size=(12, 1))
    for name, other, factor in (("scaled", 7.0 * returns, 7.0), ("shifted", returns + shift, 1.0)):
        np.testing.assert_allclose(reward_std(other), factor * reward_std(returns), rtol=1e-9, err_msg=name)
        assert split(reward_std(other), 4) == split(reward_std(returns), 4)
        np.testing.assert_allclose(
            group_advantages(other, False), factor * group_advantages(returns, False), rtol=1e-6, atol=1e-12
        )
        np.testing.assert_allclose(group_advantages(other, True), group_advantages(returns, True), rtol=1e-6, atol=1e-9)


def test_equal_standard_deviations_stay_equal_under_float32_rounding():
    """Returns of 0.1, 0.2, ... have equal differences; adding 4 rounds them differently, but moves no group."""
    pairs = np.array([[0.1, 0.2], [0.5, 0.6], [0.3, 0.4], [0.7, 0.8], [0.2, 0.6], [0.1, 0.5], [0.9, 0.5], [0.3, 0.7]])
    plain, shifted = (reward_std(np.float32(pairs + shift).astype(np.float64)) for shift in (0.0, 4.0))
    assert len(set(plain)) == len(set(shifted)) == 2
    assert split(shifted, 4) == split(plain, 4)
    assert [bucket.groups for bucket in split(shifted, 4)] == [(0, 1), (2, 3), (4, 5), (6, 7)]
    np.testing.assert_allclose(shifted, plain, rtol=1e-4)


def test_standard_deviations_above_rounding_stay_different():
    std = np.array([0.5, 0.5 + 3e-7, 0.5 + 1e-5, 0.0, NAN])
    merged = merge_equal(std, np.full(5, 1e-6))
    np.testing.assert_array_equal(merged, [0.5, 0.5, 0.5 + 1e-5, 0.0, NAN])


def test_a_chain_of_small_differences_is_not_merged_into_one_value():
    """Returns of 1000 + U(0, 1): many standard deviations lie so close that each differs from the next by rounding."""
    returns = 1000.0 + np.random.default_rng(0).random((4000, 8))
    std, merged = returns.std(1, ddof=1), reward_std(returns)
    assert (merged <= std + 1e-12).all() and (std - merged).max() < 1e-3
    assert len(set(merged)) > 400


def test_group_advantages_match_a_hand_calculation():
    returns = np.array([[1.0, 0.0], [2.0, 2.0], [5.0, NAN]])
    np.testing.assert_array_equal(group_advantages(returns, False), [[0.5, -0.5], [0, 0], [0, 0]])
    root = math.sqrt(0.5)
    np.testing.assert_allclose(group_advantages(returns, True), [[root, -root], [0, 0], [0, 0]], rtol=1e-12)
