"""Numbers as people type them."""

from __future__ import annotations

import pytest

from hmx.config.coerce import typed_number


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("20", 20),
        (" 1_000 ", 1000),
        ("-3", -3),
        ("20k", 20_000),
        ("20K", 20_000),
        ("1M", 1_000_000),
        ("1.5m", 1_500_000),
        ("1.001M", 1_001_000),
        ("4.35k", 4350),
        ("2G", 2_000_000_000),
        (".5k", 500),
        ("9007199254740993k", 9007199254740993000),
    ],
)
def test_whole_numbers_are_exact_and_have_suffixes(text, value):
    found = typed_number(text)
    assert found == value and type(found) is int


@pytest.mark.parametrize(("text", "value"), [("2e4", 2e4), ("0.5", 0.5), ("1.2345k", 1234.5)])
def test_other_numbers_are_floats(text, value):
    found = typed_number(text)
    assert found == value and type(found) is float


@pytest.mark.parametrize(
    "text", ["", "k", "1kk", "1e3k", "-1k", "20 k", "1T", "nan", "inf", "1e400", "two", "0x10", "1__0"]
)
def test_other_text_is_returned_unchanged(text):
    assert typed_number(text) == text


def test_very_long_digits_are_a_number_without_an_error():
    assert typed_number("9" * 100_000) == 10**4000
