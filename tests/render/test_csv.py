"""One table as comma-separated values."""

from __future__ import annotations

import csv
import math

from hmx.render.blocks import Cell, Column, Row, Table
from hmx.render.csv import csv_text

COLUMNS = (Column("name", "left"), Column("value (s)"))


def test_values_are_exact_and_headings_are_omitted():
    rows = (
        Row(("part",)),
        Row(("a", Cell("0.33", value=1 / 3))),
        Row(("b", Cell("1.00M", value=1_000_000))),
        Row(("c", Cell("yes", value=True))),
        Row(("d", "text")),
    )
    expected = "name,value (s)\na,0.3333333333333333\nb,1000000\nc,true\nd,text\n"
    assert csv_text(Table(COLUMNS, rows, "title", "note")) == expected


def test_unknown_values_are_empty():
    rows = tuple(Row(("a", Cell("-", value=value))) for value in (math.nan, math.inf, ""))
    assert csv_text(Table(COLUMNS, rows)) == "name,value (s)\n" + "a,\n" * 3


def test_hostile_text_stays_in_its_cell():
    evil = ['x,"y"', "a\nb\r", "\x1b[2J"]
    found = csv_text(Table(COLUMNS, tuple(Row((text, Cell(text))) for text in evil)))
    assert list(csv.reader(found.splitlines()))[1:] == [[text] * 2 for text in ('x,"y"', "a\\nb\\r", "\\x1b[2J")]
    assert "\x1b" not in found


def test_empty_table_has_only_its_header():
    assert csv_text(Table(COLUMNS, ())) == "name,value (s)\n"
