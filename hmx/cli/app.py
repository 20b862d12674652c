"""The root command, around which every failure becomes a message."""

from __future__ import annotations

import ast
import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.completion import completion_init, install  # type: ignore[attr-defined]
from typer.core import TyperCommand

from hmx.cli import boundary
from hmx.cli.commands import COMMAND_GROUPS, MARKUP, NARROW, CommandGroup, Commands
from hmx.cli.shells import SCRIPTS
from hmx.config.extras import version
from hmx.config.textfile import quoted
from hmx.errors import ExitCode, HmxError, nearest
from hmx.registry.trust import ACCEPT_FLAG, TRUST_FLAG, trusting

if "_HMX_COMPLETE" in os.environ:
    os.environ["COLUMNS"] = "10000"  # fish treats each line of a wrapped description as a candidate
    completion_init()

TRUST_PANEL = "Trust in code"


class Root(CommandGroup):
    """`hmx`, which imports only the command that is run, and turns every exception into a message.

    `--debug` is accepted anywhere before `--` and prints the traceback, which otherwise goes to a crash report.
    `--trust-env` and `--accept-env-change` are accepted anywhere too; see `hmx.registry.trust`.
    """

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands: Any = Commands()

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Parse and run, then exit (or return the result if `standalone_mode` is off)."""
        given = list(sys.argv[1:] if args is None else args)
        options, switches = boundary.before_dashes(given), ("--debug", TRUST_FLAG, ACCEPT_FLAG)
        words = [word for word in options if word not in switches] + given[len(options) :]
        words = [*words[1:], "--help"] if words[:1] == ["help"] else words
        debug, trust, changed = (switch in options for switch in switches)

        def run() -> Any:
            with boundary.failed_estimates_said(), trusting(trust, changed):
                return super(Root, self).main(words, prog_name, complete_var, False, windows_expand_args, **extra)

        if not standalone_mode:
            return run()
        code: Any
        # Libraries expect streams that the caller closed (`>&-`) to exist.
        sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115 - open until the process ends
        sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
        try:
            code = run()
            sys.stdout.flush()
        except BrokenPipeError:
            boundary.silence()
            code = ExitCode.OK
        except Exception as error:
            code = boundary.report(error, given, debug)
        code = int(code) if isinstance(code, int) else 0
        boundary.end_at_once(code)
        sys.exit(code)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; an interruption keeps the signal that caused it, and a closed pipe is not an error."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            boundary.silence()
            raise typer.Exit(int(ExitCode.OK)) from None
        except KeyboardInterrupt as error:
            raise typer.Exit(boundary.interrupted(error)) from error

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help, which needs only the docstrings of the commands."""
        with self._described():
            super().format_help(ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Return the commands and options that begin with `incomplete`, without an import of the commands."""
        with self._described():
            return super().shell_complete(ctx, incomplete)

    @contextlib.contextmanager
    def _described(self) -> Iterator[None]:
        """Have commands with nothing but their help in the block."""
        commands = self.commands
        self.commands = {
            name: TyperCommand(name, help=_summary(name), rich_help_panel=group)
            for group, names in COMMAND_GROUPS.items()
            for name in names
        }
        try:
            yield
        finally:
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
    epilog="Start with: hmx train --preset gumbel. hmx COMMAND --help explains the rest.",
    no_args_is_help=True,
    rich_markup_mode=MARKUP,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], **NARROW},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hmx {version()}")
        raise typer.Exit


def _install_completion(shell: str | None) -> None:
    if shell:
        name, path = install(shell=_shell(shell))  # writes the script of Typer, which completes less
        path.write_text(SCRIPTS[shell], encoding="utf-8")
        typer.echo(f"{name} completion installed in {path}")
        typer.echo("Completion will take effect once you restart the terminal")
        raise typer.Exit


def _show_completion(shell: str | None) -> None:
    if shell:
        typer.echo(SCRIPTS[_shell(shell)], nl=False)
        raise typer.Exit


def _shell(name: str) -> str:
    if name not in SCRIPTS:
        near = nearest(name, SCRIPTS)
        hint = f"did you mean {near}?" if near else "zsh, for example"
        raise HmxError(f"cannot complete in {quoted(name) or repr(name)}: expected {', '.join(SCRIPTS)}", hint)
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
        typer.Option(
            TRUST_FLAG,
            metavar="",
            help="Run the code that a run folder or file names (accepted anywhere).",
            rich_help_panel=TRUST_PANEL,
        ),
    ] = False,
    accept_env_change: Annotated[
        bool,
        typer.Option(
            ACCEPT_FLAG,
            metavar="",
            help="Use your code even if it has changed since the run began (accepted anywhere).",
            rich_help_panel=TRUST_PANEL,
        ),
    ] = False,
    install_completion: Annotated[
        str | None,
        typer.Option(
            "--install-completion",
            metavar="SHELL",
            help=f"Install Tab completion for {', '.join(SCRIPTS)}.",
            callback=_install_completion,
            is_eager=True,
            autocompletion=lambda incomplete: list(SCRIPTS),
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
            autocompletion=lambda incomplete: list(SCRIPTS),
        ),
    ] = None,
) -> None:
    """Train reinforcement-learning agents in JAX, and see why they learn."""
