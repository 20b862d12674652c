"""Every number format of the project."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest

from hmx.errors import HmxError
from hmx.render import quantities as q


def test_number_keeps_significant_digits():
    values = [None, math.nan, 0.0, -0.0, 0.12345, 0.0098, 999.6, 1234.5, 1.5e-7, -0.25, 2.5e6, 3e12, math.inf]
    expected = ["-", "-", "0", "0", "0.123", "0.0098", "1,000", "1,234", "1.5e-7", "-0.25", "2,500,000", "3e12", "inf"]
    assert [q.number(value) for value in values] == expected
    assert [q.number(v, 4) for v in (0.123456, 123456.7, 9999.4)] == ["0.1235", "123,457", "9999"]


def test_percent_rounds_and_has_no_negative_zero():
    assert [q.percent(v) for v in (None, math.nan, -0.002, 0.314, 1.0)] == ["-", "-", "0%", "31%", "100%"]
    assert q.percent(0.3146, 1) == "31.5%"


def test_signed_shows_the_sign():
    assert [q.signed(v) for v in (None, math.nan, 0.25, -0.251, 0.0)] == ["-", "-", "+0.25", "-0.25", "+0.00"]


def test_count_is_exact():
    values = [None, math.nan, True, 0, 1234567, 0.5, 2.0, "a\x1b"]
    assert [q.count(value) for value in values] == ["-", "-", "yes", "0", "1,234,567", "0.5", "2", "a\\x1b"]


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (950, "950"), (12_500, "12.5k"), (4e6, "4.00M"), (123e6, "123M"), (2.5e9, "2.50G")]
)
def test_short_takes_five_characters(value, text):
    assert q.short(value) == text


@pytest.mark.parametrize(
    ("value", "low", "high", "text"),
    [
        (0.8123, 0.79, 0.84, "0.812 [0.790, 0.840]"),
        (1234.5, 1000.0, 1500.0, "1,234 [1,000, 1,500]"),
        (-0.0001, -0.5, 0.5, "0.00 [-0.50, 0.50]"),
        (0.5, None, None, "0.5"),
        (0.5, 0.5, 0.5, "0.5 (all equal)"),
        (None, None, None, "-"),
    ],
)
def test_interval_has_the_decimals_that_its_width_justifies(value, low, high, text):
    assert q.interval(value, low, high) == text


def test_tiny_values_have_an_exponent_instead_of_many_zeros():
    assert q.interval(4.59e-15, 1.2e-15, 7.9e-15) == "4.59e-15 [1.2e-15, 7.9e-15]"
    assert q.interval(2e-7, 1e-7, 3e-7) == "2e-7 [1e-7, 3e-7]"
    assert q.interval(2e-5, 1e-5, 3e-5) == "0.000020 [0.000010, 0.000030]"
    assert q.plus_minus(4.59e-15, 1.234e-15) == "4.59e-15 ± 1.2e-15"


def test_interval_shows_signs_on_request():
    assert q.interval(0.25, 0.1, 0.4, sign=True) == "+0.25 [+0.10, +0.40]"
    assert q.interval(0.25, sign=True) == "+0.25"


def test_plus_minus_shows_two_digits_of_the_spread():
    shown = [
        q.plus_minus(*pair) for pair in ((0.81234, 0.0131), (12345.6, 120.0), (0.5, 0.0), (0.5, None), (None, 1.0))
    ]
    assert shown == ["0.812 ± 0.013", "12,346 ± 120", "0.5 ± 0", "0.5", "-"]


@pytest.mark.parametrize(("seconds", "text"), [(-1, "0:00"), (59.4, "0:59"), (59.6, "1:00"), (3725, "1:02:05")])
def test_clock_shows_hours_minutes_and_seconds(seconds, text):
    assert q.clock(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0.0321, "32.1 ms"),
        (45, "45 s"),
        (90, "1.5 min"),
        (7200, "2.0 h"),
        (864_000, "240.0 h (10.0 days)"),
    ],
)
def test_duration_chooses_a_unit(seconds, text):
    assert q.duration(seconds) == text


@pytest.mark.parametrize(("seconds", "text"), [(0.2, "1 s"), (90, "1.5 min"), (864_000, "10.0 days")])
def test_age_is_short(seconds, text):
    assert q.age(seconds) == text


@pytest.mark.parametrize(
    ("size", "step", "text"),
    [
        (0, 1024, "0 B"),
        (1023, 1024, "1023 B"),
        (1536, 1024, "1.5 KiB"),
        (1e6, 1000, "1.0 MB"),
        (2**62, 1024, "4096.0 PiB"),
    ],
)
def test_data_size_chooses_a_unit(size, step, text):
    assert q.data_size(size, step) == text


def test_bar_grows_with_the_share():
    shares = (None, math.nan, -0.5, 0.0, 0.5, 0.53, 1.0, 3.0)
    assert [q.bar(share, 4) for share in shares] == ["", "", "", "", "██", "██▏", "████", "████"]
    assert q.bar(0.5, 4, ascii_only=True) == "##"


def test_speeds_accept_commas_and_suffixes():
    assert q.speeds(["20k,2e5", "0.5"]) == (20_000.0, 200_000.0, 0.5)


@pytest.mark.parametrize("text", ["", "0", "-1", "nan", "inf", "fast", "1,", "9" * 5000])
def test_speeds_refuse_other_text(text):
    with pytest.raises(HmxError, match="must be a number above 0"):
        q.speeds([text])


@pytest.mark.parametrize(("text", "size"), [("80GB", 80 * 10**9), ("80GiB", 80 * 2**30), ("1.5 kB", 1500), ("7B", 7)])
def test_memory_size(text, size):
    assert q.memory_size(text) == size


@pytest.mark.parametrize("text", ["80", "0GB", "GB", "1.2.3GB", "-1GB", "80 giga"])
def test_memory_size_refuses_text_without_number_or_unit(text):
    with pytest.raises(HmxError, match="must be a size with its unit"):
        q.memory_size(text)


def test_quantities_import_neither_rich_nor_jax():
    code = "import sys, hmx.render.quantities; sys.exit(bool({'rich', 'typer', 'jax', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
