"""Values of one curve, and curves of a side."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmx.records.curves import AgentCurves, MetricCurves
from hmx.reports.compare.tasks import median
from hmx.reports.curves import AgentMetrics, Curve, agents_of, band


def series(values, steps=None, weights=None):
    values = np.array(values, float)
    steps = np.arange(1, len(values) + 1) * 10 if steps is None else np.array(steps)
    weights = np.ones(len(values)) if weights is None else np.array(weights, float)
    return Curve(steps.astype(float), steps / 5.0, values, weights)


def test_a_missing_series_has_no_values():
    none = series([])
    assert none.final(10, 1.0) == (None, "was never reported")
    assert none.area(10) is None and none.reached(1.0, 10) is None and none.around(1, 0.1) is None
    assert series([1.0]).final(5, 0.5) == (None, "was never reported")


def test_values_after_the_end_are_ignored():
    assert series([1.0, 2.0, 9.0]).final(20, 10)[0] == 2.0
    assert series([1.0, 1.0, 9.0]).area(20) == 1.0
    assert series([1.0, 1.0, 9.0]).reached(5.0, 20) is None


def test_nan_counts_only_inside_the_window():
    assert series([np.nan, 1.0]).final(20, 10) == (1.0, "")
    assert series([1.0, np.nan]).final(20, 10)[0] is None
    assert series([1.0, np.nan]).area(20) is None
    assert series([1.0, np.nan]).around(20, 20) == 1.0


def test_a_single_high_value_does_not_reach_a_threshold():
    noisy = series([0.0] * 50 + [1.0] + [0.0] * 49, steps=np.arange(1, 101))
    assert noisy.reached(0.4, 100) is None
    assert noisy.reached(0.2, 100) == (51.0, 51 / 5)  # a fifth, over five updates


def test_a_threshold_needs_three_updates():
    assert series([5.0, 0.0, 0.0, 5.0]).reached(4.0, 40) is None
    assert series([5.0, 5.0]).reached(4.0, 20) is None
    assert series([5.0, 5.0, 5.0]).reached(4.0, 30) == (30.0, 6.0)


def test_a_threshold_weights_values_by_episodes():
    assert series([0.0, 0.0, 3.0], weights=[1, 1, 1]).reached(2.0, 30) is None
    assert series([0.0, 0.0, 3.0], weights=[1, 1, 4]).reached(2.0, 30) == (30.0, 6.0)


def test_threshold_can_be_reached_from_above():
    assert series([3.0, 2.0, 1.0, 1.0]).reached(1.5, 40, up=False) == (40.0, 8.0)


def test_nan_never_reaches_a_threshold():
    assert series([np.nan, np.nan, 1.0, 1.0]).reached(0.0, 40) is None


def test_median_is_none_if_half_never_reached_it():
    assert median([1.0, 2.0, None]) == 2.0
    assert median([1.0, None, None]) is None
    assert median([1.0, None]) is None
    assert median([]) is None


def seeds(*found):
    return [AgentMetrics("run", i, s.steps, s.time, {"m": s.values}, s.steps) for i, s in enumerate(found)]


def test_curve_is_the_interquartile_mean_of_the_seeds():
    drawn = band(seeds(series([0.0, 0.0]), series([2.0, 4.0]), series([4.0, 8.0])), "m", "steps", 100, 0)
    assert drawn.steps[0] == pytest.approx(10) and drawn.steps[-1] == 20
    assert drawn.values[0] == pytest.approx(2.0) and drawn.values[-1] == pytest.approx(4.0)
    assert (drawn.low[-1], drawn.high[-1]) == (0.0, 8.0)  # no interval of three seeds is narrower


def test_curve_of_one_seed_has_no_interval():
    drawn = band(seeds(series([1.0, 2.0])), "m", "time", 100, 0)
    assert drawn.time[-1] == 4.0 and not len(drawn.low)


def test_curve_is_none_without_finite_values():
    assert band(seeds(series([np.nan])), "m", "steps", 10, 0) is None
    assert band(seeds(series([1.0])), "other", "steps", 10, 0) is None


def test_curve_is_none_if_a_seed_ends_before_another_reports():
    early, late = series([1.0, 2.0]), series([3.0, 4.0])
    late = dataclasses.replace(late, time=late.time + 100)
    assert band(seeds(early, late), "m", "steps", 10, 0) is not None
    assert band(seeds(early, late), "m", "time", 10, 0) is None


_values = st.lists(st.floats(-100, 100, allow_nan=False), min_size=1, max_size=30)


@given(_values, st.integers(1, 400))
def test_final_and_area_lie_within_the_values(values, end):
    found = series(values)
    inside = found.until(end)
    for figure in (found.final(end, 0.1 * end)[0], found.area(end)):
        if len(inside.steps):
            assert min(inside.values) - 1e-9 <= figure <= max(inside.values) + 1e-9
        else:
            assert figure is None


@given(_values)
def test_curve_lies_within_the_values(values):
    drawn = band(seeds(series(values)), "m", "steps", 10, 0)
    assert min(values) - 1e-9 <= min(drawn.values) and max(drawn.values) <= max(values) + 1e-9


@given(st.floats(-100, 100), st.integers(1, 30))
def test_constant_curve_has_its_value_as_final_and_area(value, count):
    found = series([value] * count, weights=range(1, count + 1))
    assert found.final(10 * count, count)[0] == value
    assert found.area(10 * count) == pytest.approx(value, rel=1e-12, abs=1e-12)


def test_time_follows_from_the_speed_that_agents_share():
    agent = AgentCurves(3, None)
    for steps, speed, update in ((20, 5.0, 2), (10, 2.0, 1), (30, None, 3), (40, 5.0, 4)):
        agent.add(steps, {"train/steps_per_sec": speed, "update": update})
    (found,) = agents_of(MetricCurves((agent,)), "run", side_by_side=2)
    assert (found.who, found.end, found.update) == ("run seed 3", 40, 4)
    assert found.time.tolist()[:2] == [10.0, 14.0] and np.isnan(found.time[2:]).all()  # 2 x 10 / 2, then 2 x 10 / 5
