"""`hmx presets`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from hmx.cli import completion
from hmx.cli.output import Outputs, write_outputs
from hmx.config import presets as known

SCHEMA = 1


def presets(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Show the settings of a preset.", autocompletion=completion.preset_names),
    ] = None,
    *,
    outputs: Outputs,
) -> None:
    """List the presets for `hmx train --preset NAME`, or show the settings of one.

    Example: hmx presets

    Example: hmx presets tiny
    """
    from hmx.render.blocks import Block, Cell, Column, Document, Heading, Picture, Row, Table

    if name is not None:
        text, body = known.text(name), {"schema": SCHEMA, "name": name, "values": known.values(name)}
        if outputs.on_console:
            sys.stdout.write(text)
        else:
            write_outputs(body, Document(name, (Picture("settings", text),)), outputs)
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
    write_outputs({"schema": SCHEMA, "presets": listed}, Document("", tuple(blocks)), outputs)
