"""The one-line curve."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from hmx.render.quantities import sparkline


def test_a_rising_line_uses_every_height():
    assert sparkline(range(8), 8) == "▁▂▃▄▅▆▇█"


def test_many_values_are_averaged_in_equal_parts():
    assert sparkline([0, 0, 0, 0, 9, 9, 9, 9], 2) == "▁█"
    assert sparkline([0, 8, 4, 4], 2) == "▁▁"


def test_equal_values_are_a_flat_line():
    assert sparkline([2.0, 2.0, 2.0], 10) == "▁▁▁"


def test_empty_series_draws_nothing():
    assert sparkline([], 5) == "" == sparkline([math.nan, math.inf], 5) == sparkline([1.0], 0)


def test_ascii_is_used_without_unicode_support():
    assert sparkline(range(7), 7, ascii_only=True).isascii()


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True, width=32), max_size=200), st.integers(0, 60))
def test_sparkline_always_fits(values, width):
    finite = sum(map(math.isfinite, values))
    assert len(sparkline(values, width)) == min(width, finite)
