"""`hmx runs`: what runs there are, whether one is whole, and sending one to Weights & Biases."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hmx.cli.boundary import print_json, say
from hmx.cli.options import OUTPUT_PANEL, Json, RunArgument, switch
from hmx.records.layout import DEFAULT_ROOT

app = typer.Typer(no_args_is_help=True, help="List runs, check one for damage, or send one to Weights & Biases.")

Root = Annotated[
    Path, typer.Option("--root", metavar="FOLDER", help="The folder of the runs.", show_default=DEFAULT_ROOT)
]


@app.command("list")
def list_(root: Root = Path(DEFAULT_ROOT), json: Json = False) -> None:
    """List the runs with state, steps, return and size.

    A run that says it is running although no process holds its lock has crashed; hmx resume goes on with it.
    """
    from rich.console import Console

    from hmx.cli import run_tables
    from hmx.jobs.runs import list_runs

    found = list_runs(root)
    if json:
        print_json(found.to_json())
    else:
        Console(highlight=False).print(run_tables.runs(found))


@app.command()
def verify(run: RunArgument, json: Json = False) -> None:
    """Check every file of a run for damage.

    Reads the whole run folder and changes nothing. Ends with exit code 3 if anything is damaged or missing.
    """
    from rich.console import Console

    from hmx.cli import run_tables
    from hmx.errors import ExitCode
    from hmx.jobs.runs import verify as job

    found = job(run)
    if json:
        print_json(found.to_json())
    else:
        Console(highlight=False).print(run_tables.verification(found))
    if found.damage:
        count = len(found.damage)
        hint = f"checkpoint {found.intact[-1]} is the newest intact one: hmx resume {run} goes on from it"
        things = "1 thing" if count == 1 else f"{count} things"
        say("error", f"{found.run}: {things} damaged or missing", hint if found.intact else "no checkpoint is intact")
        raise typer.Exit(int(ExitCode.ARTEFACT))


@app.command()
def sync(
    run: RunArgument,
    project: Annotated[
        str | None, typer.Option("--project", metavar="NAME", help="The wandb project; the run's own by default.")
    ] = None,
    offline: Annotated[
        bool, switch("--offline", "Write what `wandb sync` can send later, below the run folder.", OUTPUT_PANEL)
    ] = False,
    json: Json = False,
) -> None:
    """Send the metrics of a run to Weights & Biases.

    For a run that trained without it, or without a network. What is there already is not sent again.
    """
    from rich.console import Console

    from hmx.cli import run_tables
    from hmx.jobs.sync import sync as job

    done = job(run, project=project, mode="offline" if offline else "online")
    if json:
        print_json(done.to_json())
    else:
        Console(highlight=False).print(run_tables.synchronisation(done))
