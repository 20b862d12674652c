"""The table of a report as CSV, with exact values."""

from __future__ import annotations

import csv
import io
import math

from hmx.config.textfile import printable
from hmx.render.blocks import Cell, Table, as_cell


def csv_text(table: Table) -> str:
    """Return a table as CSV with exact values, without the headings inside it.

    Numbers that are not finite become empty cells.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([printable(column.name, "") for column in table.columns])
    for row in table.rows:
        if len(row.cells) == len(table.columns):
            writer.writerow([_value(as_cell(cell)) for cell in row.cells])
    return out.getvalue()


def _value(cell: Cell) -> str | float:
    value = cell.text if cell.value is None else cell.value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return printable(value, "")
    return value if math.isfinite(value) else ""
