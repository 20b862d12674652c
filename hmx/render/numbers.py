"""Declare a number of a result once: a field with its meaning, unit, better direction, column and format.

`--json` has the fields themselves. Columns, rows of `--csv`, names in `--fail-if` and tables of the documentation
derive from the declarations.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from hmx.config.option import REQUIRED, field_of
from hmx.records.metrics_table import Direction
from hmx.render.blocks import Cell, Column, Row, Table, Tone
from hmx.render.quantities import UNKNOWN, data_size, duration, interval, number
from hmx.stats.estimate import Estimate

Shown = tuple[Column, Callable[[Any], Cell | str]]
"""A column, and the function that writes its cell for a record."""


def estimate(found: Estimate | None) -> str:
    """Return an estimate as text."""
    return UNKNOWN if found is None else interval(*found)


def signed_estimate(found: Estimate | None) -> str:
    """Return an estimate with its sign as text."""
    return UNKNOWN if found is None else interval(*found, sign=True)


def probability(found: Estimate | None) -> str:
    """Return a probability over pairs of runs as text; one without an interval is the same for every pair."""
    if found is not None and found.low == found.high and found.low is not None:
        return f"{number(found.value, 4)} (in every pair)"
    return estimate(found)


def p_value_text(found: float | None) -> str:
    """Return a p-value as text."""
    return number(found, 2)


_BY_UNIT: Mapping[str, Callable[[Any], str]] = {
    "seconds": duration, "probability": probability,
    "bytes": lambda size: UNKNOWN if size is None else data_size(size),
    "steps": lambda steps: UNKNOWN if steps is None else f"{steps:,.0f}",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Number:
    """All facts about a number; `num` takes the same arguments."""

    doc: str  # its meaning, as a phrase without a full stop
    unit: str = ""  # also selects the format of its cell
    better: Direction = "none"  # "none" also where it depends on the metric
    column: str = ""  # its heading in the text; "" for a number that no column shows
    _: dataclasses.KW_ONLY
    rank: int = 0  # of the column: where there is no room, the highest is left out first
    name: str = ""  # outside the record, if it is not that of the field; one with an interval also has `NAME_low`
    of: Callable[[Any], Estimate | float | None] | None = None  # returns the value of a record; None: the field itself
    show: Callable[[Any], Cell | str] | None = None  # writes the value into a cell
    cell: Callable[[Any], Cell | str] | None = None  # writes the cell of a record, if it depends on other fields
    default: Any = REQUIRED
    field: str = ""  # of the record

    def value(self, record: object) -> Any:
        """Return the value in a record."""
        return self.of(record) if self.of is not None else getattr(record, self.field)

    def text(self, record: object) -> Cell | str:
        """Return the cell of the column."""
        if self.cell is not None:
            return self.cell(record)
        value = self.value(record)
        show = self.show or _BY_UNIT.get(self.unit)
        if show is not None:
            return show(value)
        return estimate(value) if isinstance(value, Estimate) else number(value, 4)


num = field_of(Number)
"""Make a dataclass field of a `Number`."""


@functools.cache
def numbers(kind: type) -> tuple[Number, ...]:
    """Return the numbers of a record, in the order of its fields."""
    declared = [field for field in dataclasses.fields(kind) if "column" in field.metadata]
    found = (Number(**{**field.metadata, "field": field.name}) for field in declared)
    return tuple(dataclasses.replace(one, name=one.name or one.field) for one in found)


def shown(declared: Iterable[Number], *names: str) -> list[Shown]:
    """Return the columns of numbers, in the order of `names`; without names, those of all that have a heading."""
    known = {one.name: one for one in declared}
    found = [known[name] for name in names] or [one for one in known.values() if one.column]
    return [(Column(one.column, rank=one.rank), one.text) for one in found]


def texts(name: str, cell: Callable[[Any], Cell | str], rank: int = 0) -> Shown:
    """Return a column of texts."""
    return Column(name, "left", rank), cell


def right(name: str, cell: Callable[[Any], Cell | str], rank: int = 0) -> Shown:
    """Return a column of numbers as text."""
    return Column(name, rank=rank), cell


def exact(
    name: str, value: Callable[[Any], float | None], write: Callable[[float], str] = number, rank: int = 0,
    unknown: str = UNKNOWN,
) -> Shown:  # fmt: skip
    """Return a column of numbers that `--csv` has exactly; `unknown` is the text of None."""

    def cell(record: object) -> Cell:
        found = value(record)
        return Cell(unknown if found is None else write(found), found)

    return Column(name, rank=rank), cell


def table_of(
    records: Iterable[Any], columns: Iterable[Shown], title: str = "", note: str = "",
    tone: Callable[[Any], Tone] = lambda record: "plain",
) -> Table:  # fmt: skip
    """Build a table with a row per record."""
    heads, cells = zip(*columns, strict=True)
    rows = (Row(tuple(cell(record) for cell in cells), tone(record)) for record in records)
    return Table(heads, tuple(rows), title, note)
