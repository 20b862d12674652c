"""The root command and the list of commands."""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Callable
from typing import Annotated

import typer

from hmx.cli import compare, compute_config, evaluate, grad_report, play, resume, runs, score_buffer, train, watch
from hmx.cli.boundary import Boundary
from hmx.cli.version import version

# Panels need room; a narrow terminal gets plain help instead of columns of single words.
_COLUMNS = shutil.get_terminal_size().columns
_NARROW: dict[str, object] = {"terminal_width": max(_COLUMNS - 2, 20)} if _COLUMNS < 60 else {}

app = typer.Typer(
    name="hmx",
    cls=Boundary,
    help="Train, watch and measure agents on HackMatrix, in pure JAX.",
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
        typer.Option(
            "--version", metavar="", help="Print the version and end.", callback=_print_version, is_eager=True
        ),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", metavar="", help="Show the traceback of an error; may stand anywhere.")
    ] = False,
) -> None:
    """Train, watch and measure agents on HackMatrix, in pure JAX."""


def _help_of(function: Callable[..., None]) -> str:
    """The docstring with each paragraph on one line, to be wrapped where it is shown."""
    paragraphs = inspect.cleandoc(function.__doc__ or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


for _function in (
    train.train,
    resume.resume,
    evaluate.evaluate,
    watch.watch,
    play.play,
    compare.compare,
    compute_config.compute_config,
    grad_report.grad_report,
    score_buffer.score_buffer,
):
    app.command(_function.__name__.replace("_", "-"), help=_help_of(_function))(_function)
app.add_typer(runs.app, name="runs")
