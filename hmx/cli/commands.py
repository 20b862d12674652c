"""The list of commands, and how their help looks."""

from __future__ import annotations

import importlib
import inspect
import shutil
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from functools import partial
from typing import Any, Literal

import typer
from typer.core import TyperCommand, TyperGroup

from hmx.errors import HmxError

# Help panels need room: a narrow terminal gets plain help.
_COLUMNS = shutil.get_terminal_size().columns
NARROW: dict[str, object] = {"terminal_width": max(_COLUMNS - 2, 20)} if _COLUMNS < 60 else {}
MARKUP: Literal["rich"] | None = None if NARROW else "rich"

COMMAND_GROUPS: Mapping[str, tuple[str, ...]] = {
    "First steps": ("train", "watch", "report", "doctor", "compare"),
    "Train": ("resume", "fork", "study", "gate", "presets", "envs", "new-env", "check-env", "compute-config", "bench"),
    "Look": ("evaluate", "play", "board"),
    "Analyse": ("review", "grad-report", "score-buffer"),
    "Manage": ("runs", "export"),
}
"""The commands in the order of the help: first the five that a newcomer needs, then the others by purpose.

`hmx.cli` declares each command in a module of its name, with `_` for `-`: as a function of that name, or several in
`COMMANDS`. Their parameters become options, see `hmx.cli.options.with_options`.
"""

COMMANDS = tuple(name for names in COMMAND_GROUPS.values() for name in names)


def _in_usage(param: Any, written: Callable[..., str], ctx: Any, *, usage: bool = False) -> str:
    """Write the name of an argument; in a usage line, dots say that it may be repeated, which typer 0.28 leaves out."""
    text = written(param, ctx, usage=usage)
    return f"{text}..." if usage and param.nargs != 1 and not text.endswith("...") else text


class PlainHelp:
    """Leave Python types such as `<bool>` and `<path>` out of the help of a command."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, without types to display."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if param.param_type_name == "argument":
                if hasattr(param, "display_type_rich"):  # typer 0.29
                    param.display_type_rich = lambda ctx: None
                    continue
                param.type = copy(param.type)
                param.type.get_metavar = lambda **given: ""
                param.make_metavar = partial(_in_usage, param, type(param).make_metavar)
            elif param.metavar is None:
                param.metavar = ""
        return params


class Command(PlainHelp, TyperCommand):
    """A command with plain help, and with the commands of the paragraphs `Example: hmx ...` as its examples."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Parse the arguments; a word that no path can have is a wrong argument."""
        try:
            return super().parse_args(ctx, args)
        except ValueError as problem:
            raise HmxError(f"cannot read the arguments of {ctx.command_path}: {problem}", "give a valid path") from None

    def __init__(self, *args: Any, help: str | None = None, **more: Any) -> None:
        paragraphs = [" ".join(part.split()) for part in inspect.cleandoc(help or "").split("\n\n")]
        self.examples = [part.removeprefix("Example: ") for part in paragraphs if part.startswith("Example: ")]
        self.description = [part for part in paragraphs if not part.startswith("Example: ")]
        block = "\n  ".join(["Example:" if len(self.examples) == 1 else "Examples:", *self.examples])
        # Rich would remove the indent of a second paragraph, and plain help wraps a paragraph without this mark.
        between = ("\n\n" if len(self.description) > 1 else "\n\n\n\n") + ("" if more["rich_markup_mode"] else "\b\n")
        text = "\n\n".join(self.description) + (between + block if self.examples else "")
        super().__init__(*args, help=text, **more)


class CommandGroup(PlainHelp, TyperGroup):
    """A group of commands with plain help."""


class Commands(Mapping[str, Any]):
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
            from hmx.cli.options import with_options

            function = name.replace("-", "_")
            module = importlib.import_module(f"hmx.cli.{function}")  # noqa: TID251 - only of the commands above
            parent = app = typer.Typer(rich_markup_mode=MARKUP)
            if verbs := getattr(module, "COMMANDS", ()):
                app = typer.Typer(cls=CommandGroup, no_args_is_help=True, help=module.__doc__)
                parent.add_typer(app, name=name)
            for verb in verbs or (getattr(module, function),):
                app.command(verb.__name__.strip("_").replace("_", "-"), cls=Command)(with_options()(verb))
            self._built[name] = typer.main.get_group(parent).commands[name]
        return self._built[name]
