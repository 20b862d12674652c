"""`hmx presets`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from hmx.cli import completion
from hmx.cli.boundary import print_json
from hmx.cli.options import Json
from hmx.cli.output import write_result
from hmx.config import presets as known

SCHEMA = 1


def presets(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Show the settings of a preset.", autocompletion=completion.preset_names),
    ] = None,
    json: Json = False,
) -> None:
    """List the presets for `hmx train --preset NAME`, or show the settings of one.

    Example: hmx presets

    Example: hmx presets tiny
    """
    from hmx.records.plain import plain
    from hmx.render.blocks import Cell, Column, Document, Row, Table

    if name is not None:
        if json:
            print_json({"schema": SCHEMA, "name": name, "values": plain(known.values(name))})
        else:
            sys.stdout.write(known.text(name))
        return
    summaries = {name: known.summary(name) for name in known.names()}
    rows = tuple(Row((Cell(name, tone="strong"), text)) for name, text in summaries.items())
    table = Table((Column("", "left"), Column("", "left")), rows)
    listed = plain([{"name": name, "summary": text} for name, text in summaries.items()])
    write_result({"schema": SCHEMA, "presets": listed}, Document("", (table,)), json)
