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
    from hmx.render.blocks import Block, Cell, Column, Document, Heading, Row, Table

    if name is not None:
        if json:
            print_json({"schema": SCHEMA, "name": name, "values": plain(known.values(name))})
        else:
            sys.stdout.write(known.text(name))
        return
    listed = [
        {"name": name, "summary": known.summary(name), "reproduction": name in known.REPRODUCTIONS}
        for name in known.names()
    ]
    columns, blocks = (Column("", "left"), Column("", "left")), list[Block]()
    for title, reproduction in (("To start from", False), ("To reproduce other implementations", True)):
        shown = [one for one in listed if one["reproduction"] is reproduction]
        rows = tuple(Row((Cell(str(one["name"]), tone="strong"), str(one["summary"]))) for one in shown)
        blocks += (Heading(title), Table(columns, rows))
    write_result({"schema": SCHEMA, "presets": plain(listed)}, Document("", tuple(blocks)), json)
