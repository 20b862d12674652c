"""`hmx.stats` computes what rliable computes: the numbers in its own tests, and a record of its results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hmx import stats

RECORD = json.loads((Path(__file__).parent / "rliable_cases.json").read_text())
CASES = {case["name"]: case for case in RECORD["cases"]}


def test_numbers_in_the_tests_of_rliable():
    """rliable/tests/rliable/metrics_test.py, with runs as columns instead of rows."""
    x, y = [[1, 2, 1, 2], [2, 2, 1, 1]], [[1, 2, 3], [1, 2, 3]]
    assert [stats.median(x), stats.mean_estimate(x).value, stats.interquartile_mean(x)] == [1.5, 1.5, 1.5]
    assert [stats.median(y), stats.mean_estimate(y).value, stats.interquartile_mean(y)] == [2, 2, 2]
    assert stats.improvement([*x, *y]) == pytest.approx(1 / 3)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_values_equal_those_of_rliable(case: dict[str, Any]):
    for side in ("x", "y"):
        scores, expected = case[side], case[f"of_{side}"]
        assert stats.interquartile_mean(scores) == pytest.approx(expected["iqm"][0], abs=1e-6)
        assert stats.median(scores) == pytest.approx(expected["median"][0], abs=1e-6)
        assert stats.mean_estimate(scores).value == pytest.approx(expected["mean"][0], abs=1e-6)
        assert stats.gap_estimate(scores).value == pytest.approx(expected["gap"][0], abs=1e-6)
        assert stats.profile(scores, RECORD["taus"]) == pytest.approx(expected["profile"], abs=1e-6)
    assert stats.improvement([*case["x"], *case["y"]]) == pytest.approx(case["improvement"][0], abs=1e-6)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_bootstrap_intervals_equal_those_of_rliable(case: dict[str, Any]):
    """Up to the noise of resampling, measured against the width of the interval."""
    found = [
        (stats.bootstrap(case["x"], stats.interquartile_mean), case["of_x"]["iqm"]),
        (stats.bootstrap(case["y"], stats.median), case["of_y"]["median"]),
        (stats.bootstrap([*case["x"], *case["y"]], stats.improvement), case["improvement"]),
    ]
    for estimate, (_, low, high) in found:
        assert (estimate.low, estimate.high) == pytest.approx((low, high), abs=0.06 * (high - low))


def test_the_case_file_names_its_source():
    assert "rliable 1.2.0" in RECORD["source"] and len(CASES) == 5
