"""`hmx play`."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from hmx.cli.boundary import say
from hmx.cli.options import ask, with_options
from hmx.cli.watch import COMPILING, GAME_PANEL, GameOptions, leaving_by_ctrl_c, saying_at_end
from hmx.config.option import opt
from hmx.console.progress import status


@dataclass(frozen=True, kw_only=True)
class PlayOptions(GameOptions):
    """What to play with."""

    advise: str | None = opt(None, "show what the agent of a run would do, and how sure it is", metavar="RUN",
                             panel=GAME_PANEL)  # fmt: skip


@with_options()
def play(
    options: PlayOptions,
    games: Annotated[
        Path, ask("--games", "FOLDER", "Folder in which every game is saved for hmx review.", GAME_PANEL)
    ] = Path("games"),
) -> None:
    """Play HackMatrix yourself.

    Keys: arrows or w a s d move and attack, space siphons, the key next to a program runs it, ? shows the
    rules, q quits. Every game is saved; hmx review says which of its decisions mattered.

    Example: hmx play --seed 3

    Example: hmx play --scenario docs/scenarios/first-siphon.json

    Example: hmx play --advise hackmatrix-ppo-s0-001 --search 32
    """
    from hmx.play.keys import Keyboard

    with status("starting"):  # importing JAX takes seconds
        from hmx.play.play import open_game, perform
        from hmx.play.saved_games import save, saved_game

    keyboard = Keyboard()
    with status(COMPILING):
        warnings: list[str] = []
        game, advise = open_game(**vars(options), warn=warnings.append)
    paths: list[Path] = []
    try:
        with leaving_by_ctrl_c(), saying_at_end(warnings):
            perform(game, keyboard, lambda ended: paths.append(save(saved_game(ended), games)), advise)
    finally:
        for path in paths:
            say("saved", f"{path}; review it with hmx review {shlex.quote(str(path))}")
