"""Turn a plot into a table of text: a sparkline per series, or a bar per value."""

from __future__ import annotations

import math
from collections.abc import Iterator

from hmx.reports.blocks import Cell, Column, Plot, Row, Series, Table
from hmx.reports.quantities import FORMATS, sparkline

_CURVE = 24  # characters of a sparkline


def plot_table(plot: Plot, ascii_only: bool = False) -> Table:
    """Return a plot as a table with the title of the plot, and its caption as the note.

    Bars become a row each. Lines, steps and dots become a row per series with a sparkline in the order of `x`, the
    last value and the range; guide lines (grey and dashed) are left out.
    """
    bars = [series for series in plot.series if series.kind == "bars"]
    curves = [s for s in plot.series if s.kind != "bars" and not s.thin and not (s.colour < 0 and s.dashed)]
    note = plot.caption
    if bars:
        named = len({series.name for series in bars}) > 1
        columns = [Column(plot.x.label, "left"), Column("", "left"), Column(plot.y.label)]
        rows = tuple(_bar_rows(plot, bars, named))
        kept = [0, 1, 2] if named else [0, 2]
        rows = tuple(Row(tuple(row.cells[i] for i in kept)) for row in rows)
        return Table(tuple(columns[i] for i in kept), rows, plot.title, note)
    rows = tuple(_curve_row(plot, series, ascii_only) for series in curves if _known(series))
    if rows and not plot.categories:
        ends = [x for series in curves for x, _ in _known(series)]
        show = FORMATS[plot.x.format]
        note = f"{plot.x.label}: {show(min(ends))} to {show(max(ends))}. {note}".rstrip()
    head = (Column("", "left"), Column("", "left"), Column("last"), Column("range", "left", 1))
    return Table(head, rows, plot.title, note)


def _known(series: Series) -> list[tuple[float, float]]:
    pairs = zip(series.x, series.y, strict=True)
    return sorted((x, y) for x, y in pairs if y is not None and math.isfinite(x) and math.isfinite(y))


def _curve_row(plot: Plot, series: Series, ascii_only: bool) -> Row:
    show, values = FORMATS[plot.y.format], [y for _, y in _known(series)]
    shown = f"{show(min(values))} to {show(max(values))}"
    return Row((series.name or plot.y.label, sparkline(values, _CURVE, ascii_only), show(values[-1]), shown))


def _bar_rows(plot: Plot, bars: list[Series], named: bool) -> Iterator[Row]:
    show = FORMATS[plot.y.format]
    most = max((abs(y) for series in bars for _, y in _known(series)), default=0.0) or 1.0
    values = sorted(
        ((x, order, y) for order, series in enumerate(bars) for x, y in zip(series.x, series.y, strict=True)),
        key=lambda value: value[:2],
    )
    before: float | None = None
    for x, order, y in values:
        name = _place(plot, x) if x != before or not named else ""
        before = x
        known = y is not None and math.isfinite(y)
        text = show(y) if known and y is not None else "-"
        share = y / most if known and y is not None else None
        yield Row((name, bars[order].name, Cell(text, value=y, bar=share if share is not None else 0.0)))


def _place(plot: Plot, x: float) -> str:
    if plot.categories:
        return plot.categories[int(x)] if 0 <= x < len(plot.categories) else ""
    return FORMATS[plot.x.format](x)
