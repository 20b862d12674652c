"""`hmx envs` and `hmx presets`."""

from __future__ import annotations

from typing import Annotated

from hmx.cli import completion
from hmx.cli.options import Json, Sets, argument, configure
from hmx.cli.output import write_result
from hmx.config import presets as known
from hmx.config.schema import ENV_IDS


def envs(
    env: Annotated[
        str | None,
        argument(
            "ID",
            "Environment to build and describe: an id, ./FILE.py or package.module:make.",
            completion.offer(ENV_IDS),
        ),
    ] = None,
    sets: Sets = None,
    json: Json = False,
) -> None:
    """List environments, their sizes, and what is missing to use them.

    Lists the built-in environments, those of optional extras, and those that installed packages register in the
    entry-point group hmx.environments.

    Example: hmx envs ./game.py
    """
    from hmx.reports.environments import build_environment, document, list_environments, to_json

    if env is None:
        rows = list_environments()
    else:
        rows = [build_environment(configure({"env.id": env}, sets, None, None).config.env)]
    write_result(to_json(rows), document(rows), json)


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
