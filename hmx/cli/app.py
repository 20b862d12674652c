"""The root command and the list of commands."""

from __future__ import annotations

import os
import shutil
from typing import Annotated

import typer

from hmx.cli import (
    bench,
    check_env,
    compare,
    compute_config,
    doctor,
    envs,
    evaluate,
    export,
    grad_report,
    live,
    new_env,
    report,
    runs,
    score_buffer,
    train,
    watch,
)
from hmx.cli.boundary import Boundary, Command
from hmx.cli.version import version
from hmx.config.user_code import ACCEPT_FLAG, TRUST_FLAG

if "_HMX_COMPLETE" in os.environ:
    os.environ["COLUMNS"] = "10000"  # fish takes each line of a wrapped description for a candidate

# Help panels need room: a narrow terminal gets plain help.
_COLUMNS = shutil.get_terminal_size().columns
_NARROW: dict[str, object] = {"terminal_width": max(_COLUMNS - 2, 20)} if _COLUMNS < 60 else {}

app = typer.Typer(
    name="hmx",
    cls=Boundary,
    help="Train reinforcement-learning agents in JAX, and see why they learn.",
    epilog="Start with: hmx train --preset quick",
    no_args_is_help=True,
    rich_markup_mode=None if _NARROW else "rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], **_NARROW},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hmx {version()}")
        raise typer.Exit


@app.callback()
def root(
    show_version: Annotated[
        bool,
        typer.Option("--version", metavar="", help="Print the version.", callback=_print_version, is_eager=True),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", metavar="", help="Show the traceback of an error (accepted anywhere).")
    ] = False,
    trust_env: Annotated[
        bool,
        typer.Option(TRUST_FLAG, metavar="", help="Run the code that a run folder or file names (accepted anywhere)."),
    ] = False,
    accept_env_change: Annotated[
        bool,
        typer.Option(
            ACCEPT_FLAG,
            metavar="",
            help="Use your code even if it has changed since the run began (accepted anywhere).",
        ),
    ] = False,
) -> None:
    """Train reinforcement-learning agents in JAX, and see why they learn."""


for _function in (
    train.train,
    train.resume,
    evaluate.evaluate,
    watch.watch,
    watch.play,
    report.report,
    doctor.doctor,
    compare.compare,
    compute_config.compute_config,
    bench.bench,
    check_env.check_env,
    grad_report.grad_report,
    score_buffer.score_buffer,
    export.export,
    live.board,
    envs.presets,
    envs.envs,
    new_env.new_env,
):
    app.command(_function.__name__.replace("_", "-"), cls=Command)(_function)
app.add_typer(runs.app, name="runs")
