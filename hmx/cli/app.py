"""The root command and the list of commands."""

from __future__ import annotations

import ast
import importlib
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.completion import completion_init, get_completion_script, install  # type: ignore[attr-defined]
from typer.core import TyperCommand

from hmx.cli.boundary import Boundary, Command, version
from hmx.config.textfile import quoted
from hmx.errors import HmxError, nearest
from hmx.registry.user_code import ACCEPT_FLAG, TRUST_FLAG

if "_HMX_COMPLETE" in os.environ:
    os.environ["COLUMNS"] = "10000"  # fish treats each line of a wrapped description as a candidate
    completion_init()

# Help panels need room: a narrow terminal gets plain help.
_COLUMNS = shutil.get_terminal_size().columns
_NARROW: dict[str, object] = {"terminal_width": max(_COLUMNS - 2, 20)} if _COLUMNS < 60 else {}

SHELLS = ("bash", "zsh", "fish")

COMMAND_GROUPS: Mapping[str, tuple[str, ...]] = {
    "First steps": ("train", "watch", "report", "doctor", "compare"),
    "Train": ("resume", "fork", "study", "presets", "envs", "new-env", "check-env", "compute-config", "bench"),
    "Look": ("evaluate", "play", "board"),
    "Analyse": ("review", "grad-report", "score-buffer"),
    "Manage": ("runs", "export"),
}
"""The commands in the order of the help: first the five that a newcomer needs, then the others by purpose.

`hmx.cli` declares each command in a module of its name, with `_` for `-`.
"""

COMMANDS = tuple(name for names in COMMAND_GROUPS.values() for name in names)


class _Commands(Mapping[str, Any]):
    """The commands by name; each is imported and built when it is first used."""

    def __init__(self) -> None:
        self._built: dict[str, Any] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)

    def __contains__(self, name: object) -> bool:
        return name in COMMANDS

    def __getitem__(self, name: str) -> Any:
        if name not in COMMANDS:
            raise KeyError(name)
        if name not in self._built:
            function = name.replace("-", "_")
            module = importlib.import_module(f"hmx.cli.{function}")  # noqa: TID251 - only of the commands above
            parent = typer.Typer(rich_markup_mode=app.rich_markup_mode)
            if hasattr(module, "app"):
                parent.add_typer(module.app, name=name)
            else:
                parent.command(name, cls=Command)(getattr(module, function))
            self._built[name] = typer.main.get_group(parent).commands[name]
        return self._built[name]


class Root(Boundary):
    """`hmx`, which imports only the command that is run."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands: Any = _Commands()

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help, which needs only the docstrings of the commands."""
        commands = self.commands
        self.commands = {
            name: TyperCommand(name, help=_summary(name), rich_help_panel=group)
            for group, names in COMMAND_GROUPS.items()
            for name in names
        }
        super().format_help(ctx, formatter)
        self.commands = commands

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands of each group below its name, where help has no panels."""
        for group, names in COMMAND_GROUPS.items():
            with formatter.section(group):
                formatter.write_dl([(name, self.commands[name].help.partition("\n\n")[0]) for name in names])


def _summary(name: str) -> str:
    """Return the docstring of a command from its source: parsing all sources is faster than importing them."""
    function = name.replace("-", "_")
    module = ast.parse((Path(__file__).parent / f"{function}.py").read_bytes())
    functions = {part.name: part for part in module.body if isinstance(part, ast.FunctionDef)}
    return ast.get_docstring(functions.get(function, module)) or ""


app = typer.Typer(
    name="hmx",
    cls=Root,
    add_completion=False,  # its options ignore the name of a shell
    help="Train reinforcement-learning agents in JAX, and see why they learn.",
    epilog="Start with: hmx train --preset quick. hmx COMMAND --help explains the rest.",
    no_args_is_help=True,
    rich_markup_mode=None if _NARROW else "rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], **_NARROW},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hmx {version()}")
        raise typer.Exit


def _install_completion(shell: str | None) -> None:
    if shell:
        name, path = install(shell=_shell(shell))
        typer.echo(f"{name} completion installed in {path}")
        typer.echo("Completion will take effect once you restart the terminal")
        raise typer.Exit


def _show_completion(shell: str | None) -> None:
    if shell:
        typer.echo(get_completion_script(prog_name="hmx", complete_var="_HMX_COMPLETE", shell=_shell(shell)))
        raise typer.Exit


def _shell(name: str) -> str:
    if name not in SHELLS:
        near = nearest(name, SHELLS)
        hint = f"did you mean {near}?" if near else "zsh, for example"
        raise HmxError(f"cannot complete in {quoted(name) or repr(name)}: expected {', '.join(SHELLS)}", hint)
    return name


@app.callback()
def root(
    show_version: Annotated[
        bool, typer.Option("--version", metavar="", help="Print the version.", callback=_print_version, is_eager=True)
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
    install_completion: Annotated[
        str | None,
        typer.Option(
            "--install-completion",
            metavar="SHELL",
            help=f"Install Tab completion for {', '.join(SHELLS)}.",
            callback=_install_completion,
            is_eager=True,
            autocompletion=lambda incomplete: list(SHELLS),
        ),
    ] = None,
    show_completion: Annotated[
        str | None,
        typer.Option(
            "--show-completion",
            metavar="SHELL",
            help="Print the script of Tab completion, to install it yourself.",
            callback=_show_completion,
            is_eager=True,
            autocompletion=lambda incomplete: list(SHELLS),
        ),
    ] = None,
) -> None:
    """Train reinforcement-learning agents in JAX, and see why they learn."""
