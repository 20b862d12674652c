"""`hmx resume`."""

from __future__ import annotations

from typing import Annotated

import typer

from hmx.cli.options import RUN_PANEL, Json, RunArgument


def resume(
    run: RunArgument,
    steps: Annotated[
        str | None,
        typer.Option(
            "--steps",
            metavar="N",
            help="Environment steps per seed at which the run ends, in place of its own figure.",
            rich_help_panel=RUN_PANEL,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Go on with a run from its last checkpoint.

    The result is bit for bit that of a run that never stopped.
    """
    from hmx.cli.training import go_on

    go_on(run, total_steps=steps, json=json)
