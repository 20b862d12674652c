"""Options that several commands share, and the way from options to a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hmx.cli import completion
from hmx.config.coerce import show
from hmx.config.fields import FIELDS

if TYPE_CHECKING:
    from hmx.config.load import Loaded

RUN_PANEL = "Run"
CONFIG_PANEL = "Configuration"
OUTPUT_PANEL = "Output"
MAX_SEED = 2**31 - 1  # as for run.seed


def doc(key: str) -> str:
    """The help of an option that sets `key`, from the schema."""
    field = FIELDS[key]
    if field.kind == "bool" or field.default == "":
        return f"{field.doc[:1].upper()}{field.doc[1:]}."
    return f"{field.doc[:1].upper()}{field.doc[1:]} (default {show(field.default)})."


def switch(option: str, help_text: str, panel: str) -> Any:
    """An option that is there or not."""
    # The empty metavar keeps `<bool>` out of the help.
    return typer.Option(option, help=help_text, metavar="", rich_help_panel=panel)


def ask(option: str, metavar: str, help_text: str, panel: str | None = None, **more: Any) -> Any:
    """An option with a value."""
    return typer.Option(option, metavar=metavar, help=help_text, rich_help_panel=panel, **more)


def flag(option: str, key: str, metavar: str, **more: Any) -> Any:
    """An option that sets a configuration key, with its help taken from the schema.

    The value stays text here: types, ranges and choices are judged where the configuration is loaded, together
    with all other problems.
    """
    return ask(option, metavar, doc(key), more.pop("panel", CONFIG_PANEL), **more)


Json = Annotated[bool, switch("--json", "Print JSON on stdout, one object a line.", OUTPUT_PANEL)]
DryRun = Annotated[bool, switch("--dry-run", "Show what would be done, and do nothing.", OUTPUT_PANEL)]
Sets = Annotated[
    list[str] | None,
    ask(
        "--set",
        "KEY=VALUE",
        "Set any key of the configuration, as algo.gamma=0.995; may be repeated.",
        CONFIG_PANEL,
        autocompletion=completion.settings,
    ),
]
ConfigFile = Annotated[
    Path | None,
    ask(
        "--config",
        "FILE",
        "Start from a configuration file; the run.toml of any run, or its folder, will do.",
        CONFIG_PANEL,
    ),
]
Preset = Annotated[
    str | None,
    ask(
        "--preset",
        "NAME",
        "Start from a named configuration.",
        CONFIG_PANEL,
        autocompletion=completion.preset_names,
    ),
]
Checkpoint = Annotated[int | None, ask("--checkpoint", "UPDATE", "Which checkpoint; the newest by default.")]
RunArgument = Annotated[
    Path,
    typer.Argument(
        metavar="RUN",
        help="A run: its name below runs/, or the path of its folder.",
        show_default=False,
        autocompletion=completion.run_names,
    ),
]


def configure(
    flags: Mapping[str, tuple[str, Any]], sets: list[str] | None, config: Path | None, preset: str | None
) -> Loaded:
    """The configuration that the options of a command ask for.

    Args:
        flags: key -> (option, value), None where the option was not given.
        sets: `section.key=value` texts.
        config: a file or run folder.
        preset: a named configuration.

    Raises:
        HmxError: every problem at once.
    """
    from hmx.config.load import Flag, load

    given = {key: Flag(value, option) for key, (option, value) in flags.items() if value is not None}
    return load(preset=preset, file=config, sets=sets or (), flags=given, new_run=True)
