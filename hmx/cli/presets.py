"""`hmx presets`."""

from __future__ import annotations

from hmx.cli.boundary import print_json
from hmx.cli.options import Json
from hmx.config import presets as known

SCHEMA = 1


def presets(json: Json = False) -> None:
    """List the presets, for `hmx train --preset NAME`.

    Example: hmx presets
    """
    summaries = {name: known.summary(name) for name in known.names()}
    if json:
        print_json({"schema": SCHEMA, "presets": [{"name": name, "summary": text} for name, text in summaries.items()]})
        return
    from rich.console import Console
    from rich.table import Table

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    table.add_column()
    for name, text in summaries.items():
        table.add_row(name, text)
    Console(highlight=False).print(table)
