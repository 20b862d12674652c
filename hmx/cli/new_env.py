"""`hmx new-env`."""

from __future__ import annotations

import importlib.util
import keyword
from pathlib import Path
from typing import Annotated

import typer

from hmx.cli.options import switch
from hmx.errors import HmxError

EXAMPLE = Path(__file__).parents[1] / "envs" / "example_game.py"
TEST = EXAMPLE.with_name("test_example_game.txt")


def new_env(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the environment; the files are NAME.py and test_NAME.py.")
    ],
    force: Annotated[bool, switch("--force", "Replace existing files.", "Output")] = False,
) -> None:
    """Write an example environment to start your own from.

    NAME.py is a small commented grid game with reward terms, an action mask and a picture, ready to train on;
    test_NAME.py tests it.

    Example: hmx new-env game
    """
    from hmx.cli.boundary import say
    from hmx.records.atomic import write_text, writing

    stem = name.removesuffix(".py")
    if not stem.isidentifier():
        words = f"cannot name an environment {name!r}: use letters, digits and underscores"
        raise HmxError(words, "hmx new-env my_game")
    if keyword.iskeyword(stem):
        raise HmxError(f"cannot name an environment {stem}: it is a keyword of Python", f"hmx new-env my_{stem}")
    if not force and importlib.util.find_spec(stem) is not None and not Path(f"{stem}.py").exists():
        words = f"cannot name an environment {stem}: a Python module of this name is installed, which it would hide"
        raise HmxError(words, f"hmx new-env my_{stem}")
    texts = {
        name.format(stem): file.read_text("utf-8").replace("example_game", stem)
        for name, file in (("{}.py", EXAMPLE), ("test_{}.py", TEST))
    }
    taken = [file for file in texts if Path(file).exists()]
    if taken and not force:
        hint = f"choose another name, or replace it: hmx new-env {stem} --force"
        raise HmxError(f"cannot write {' and '.join(taken)}: already there", hint)
    for file, text in texts.items():
        with writing("the file", Path(file)):
            write_text(Path(file), text)
        say("wrote", file)
    say("look at it with", f"hmx watch --random --env ./{stem}.py")
    say("train with", f"hmx train --env ./{stem}.py --steps 200k")
