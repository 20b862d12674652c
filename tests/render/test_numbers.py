"""A number is declared in its field: columns, cells and names derive from it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from hmx.render.blocks import Cell
from hmx.render.numbers import exact, num, numbers, shown, table_of, texts
from hmx.stats.estimate import Estimate


@dataclass(frozen=True, kw_only=True)
class Lap:
    """A record with numbers of several units, and fields that are none."""

    who: str
    time: float | None = num("time of the lap", "seconds", "down", "lap time", rank=1)
    size: int | None = num("bytes written", "bytes", column="size", default=None)
    place: Estimate = num("mean place", column="place", name="mean_place")
    ahead: int = num("whether it is ahead", better="up", of=lambda lap: float(lap.ahead > 0))


LAP = Lap(who="A", time=90.0, place=Estimate(2.0, 1.5, 2.5), ahead=3)


def test_a_field_without_a_default_is_required_and_others_have_theirs():
    assert LAP.size is None
    with pytest.raises(TypeError, match="ahead"):
        Lap(who="A", time=1.0, place=Estimate(1.0))  # type: ignore[call-arg]


def test_numbers_have_the_names_and_values_that_their_fields_declare():
    assert [(one.name, one.unit, one.better) for one in numbers(Lap)] == [
        ("time", "seconds", "down"), ("size", "bytes", "none"), ("mean_place", "", "none"), ("ahead", "", "up"),
    ]  # fmt: skip
    assert [one.value(LAP) for one in numbers(Lap)] == [90.0, None, LAP.place, 1.0]


def test_cells_have_the_format_of_their_unit():
    assert [one.text(LAP) for one in numbers(Lap)] == ["1.5 min", "-", "2.00 [1.50, 2.50]", "1"]


def test_a_table_has_the_numbers_with_a_heading_or_those_that_are_named():
    found = table_of([LAP], [texts("who", lambda lap: lap.who), *shown(numbers(Lap))], tone=lambda lap: "strong")
    assert [(column.name, column.align, column.rank) for column in found.columns] == [
        ("who", "left", 0), ("lap time", "right", 1), ("size", "right", 0), ("place", "right", 0),
    ]  # fmt: skip
    assert found.rows[0].cells[:2] == ("A", "1.5 min") and found.rows[0].tone == "strong"
    assert [head.name for head, _ in shown(numbers(Lap), "size", "time")] == ["size", "lap time"]


def test_an_exact_column_keeps_the_value_beside_its_text():
    _, cell = exact("time", lambda value: value, unknown="none")
    cells = [cell(0.123456), cell(None)]
    assert cells == [Cell("0.123", 0.123456), Cell("none", None)]
