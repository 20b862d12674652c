"""`hmx presets`."""

from __future__ import annotations

from hmx.cli.options import Json
from hmx.cli.output import write_result
from hmx.config import presets as known

SCHEMA = 1


def presets(json: Json = False) -> None:
    """List the presets, for `hmx train --preset NAME`.

    Example: hmx presets
    """
    from hmx.records.plain import plain
    from hmx.render.blocks import Cell, Column, Document, Row, Table

    summaries = {name: known.summary(name) for name in known.names()}
    rows = tuple(Row((Cell(name, tone="strong"), text)) for name, text in summaries.items())
    table = Table((Column("", "left"), Column("", "left")), rows)
    listed = plain([{"name": name, "summary": text} for name, text in summaries.items()])
    write_result({"schema": SCHEMA, "presets": listed}, Document("", (table,)), json)
