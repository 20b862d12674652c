"""`hmx runs`: list runs, verify one, and send one to Weights & Biases."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hmx.cli.boundary import Command, CommandGroup, print_json, say
from hmx.cli.options import OUTPUT_PANEL, Json, RunArgument, switch
from hmx.records.paths import DEFAULT_ROOT

app = typer.Typer(
    cls=CommandGroup, no_args_is_help=True, help="List runs, check one for damage, or send one to Weights & Biases."
)

Root = Annotated[Path, typer.Option("--root", metavar="FOLDER", help="Folder of the runs.")]


@app.command("list", cls=Command)
def list_(root: Root = Path(DEFAULT_ROOT), json: Json = False) -> None:
    """List runs with state, steps, return and size.

    A crashed run is one that was training when its process ended; hmx resume continues it.

    Example: hmx runs list --json
    """
    from rich.console import Console

    from hmx.cli.render.terminal import print_document
    from hmx.jobs.runs import list_runs
    from hmx.reports import summaries

    found = list_runs(root)
    if json:
        print_json(found.to_json())
    else:
        print_document(summaries.run_list(found), Console(highlight=False))


@app.command(cls=Command)
def verify(run: RunArgument, json: Json = False) -> None:
    """Check every file of a run for damage.

    Reads the whole run folder and changes nothing. Exits with code 3 if anything is damaged or missing.

    Example: hmx runs verify hackmatrix-ppo-s0-001
    """
    from rich.console import Console

    from hmx.cli.render.terminal import print_document
    from hmx.errors import ExitCode
    from hmx.jobs.runs import verify as job
    from hmx.reports import summaries

    found = job(run)
    if json:
        print_json(found.to_json())
    else:
        print_document(summaries.verification(found), Console(highlight=False))
    if found.damage:
        count = len(found.damage)
        hint = "no checkpoint is intact"
        if found.intact:
            hint = f"hmx resume {run} continues from checkpoint {found.intact[-1]}, the newest intact one"
        things = "1 file is" if count == 1 else f"{count} files are"
        say("error", f"{found.run}: {things} damaged or missing", hint)
        raise typer.Exit(int(ExitCode.ARTEFACT))


@app.command(cls=Command)
def sync(
    run: RunArgument,
    project: Annotated[
        str | None,
        typer.Option("--project", metavar="NAME", help="Project name (default: that of the run)."),
    ] = None,
    offline: Annotated[
        bool, switch("--offline", "Write files for `wandb sync` below the run folder instead of sending.", OUTPUT_PANEL)
    ] = False,
    json: Json = False,
) -> None:
    """Send the metrics of a run to Weights & Biases.

    For a run that trained without Weights & Biases, or without a network. Records sent before are not sent again.

    Example: hmx runs sync hackmatrix-ppo-s0-001 --project my-project
    """
    from rich.console import Console

    from hmx.cli.render.terminal import print_document
    from hmx.jobs.sync import sync as job
    from hmx.reports import summaries

    done = job(run, project=project, mode="offline" if offline else "online")
    if json:
        print_json(done.to_json())
    else:
        print_document(summaries.synchronisation(done), Console(highlight=False))
