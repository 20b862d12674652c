"""`hmx new-env`."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

from hmx.cli.options import switch
from hmx.errors import HmxError

EXAMPLE = Path(__file__).parents[1] / "env" / "example_game.py"

TEST = '''"""Tests of {name}.py: python -m pytest test_{name}.py."""

from pathlib import Path

import jax

from hmx.env.registry import load_env

GAME = str(Path(__file__).with_name("{name}.py"))
UP, DOWN, LEFT, RIGHT = range(4)


def test_the_first_position_allows_two_moves():
    _, first = load_env(GAME).reset(jax.random.split(jax.random.key(0), 3))
    assert first.legal.sum(-1).tolist() == [[2], [2], [2]]


def test_a_coin_and_the_door_pay_and_end_the_episode():
    env = load_env(GAME, my={{"size": 2, "step_cost": 0.0}})
    state, step = env.reset(jax.random.split(jax.random.key(0), 1))[0], jax.jit(env.step)
    paid = 0.0
    for i, action in enumerate((DOWN, UP, RIGHT, DOWN)):  # past every cell, to the door
        state, timestep = step(state, jax.numpy.array([[action]]), jax.random.split(jax.random.key(i), 1))
        paid += float(timestep.reward[0, 0])
        if timestep.terminated[0]:
            break
    assert paid == 2.0 and timestep.terminated[0]
'''


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
    from hmx.records.atomic import write_text, writing

    stem = name.removesuffix(".py")
    if not stem.isidentifier():
        raise HmxError(
            f"cannot name an environment {name!r}: use letters, digits and underscores", "hmx new-env my_game"
        )
    if not force and importlib.util.find_spec(stem) is not None and not Path(f"{stem}.py").exists():
        words = f"cannot name an environment {stem}: a Python module of this name is installed, which it would hide"
        raise HmxError(words, f"hmx new-env my_{stem}")
    texts = {
        f"{stem}.py": EXAMPLE.read_text("utf-8").replace("example_game", stem),
        f"test_{stem}.py": TEST.format(name=stem),
    }
    taken = [file for file in texts if Path(file).exists()]
    if taken and not force:
        raise HmxError(
            f"cannot write {' and '.join(taken)}: already there",
            f"choose another name, or replace it: hmx new-env {stem} --force",
        )
    for file, text in texts.items():
        with writing("the file", Path(file)):
            write_text(Path(file), text)
        typer.echo(f"wrote {file}")
    typer.echo(f"next  hmx watch --random --env ./{stem}.py\n      hmx train --env ./{stem}.py --steps 200k")
