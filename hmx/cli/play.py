"""`hmx play`."""

from __future__ import annotations

import shlex
from pathlib import Path

from hmx.cli.boundary import say
from hmx.cli.options import Quiet
from hmx.cli.watch import leaving_by_ctrl_c, saying_at_end
from hmx.console.progress import progress
from hmx.play.request import PlayRequest


def play(request: PlayRequest, quiet: Quiet = False) -> None:
    """Play HackMatrix yourself.

    Keys: arrows or w a s d move and attack, space siphons, the key next to a program runs it, ? shows the
    rules, q quits. Every game is saved; hmx review says which of its decisions mattered.

    Example: hmx play --seed 3

    Example: hmx play --scenario docs/scenarios/first-siphon.json

    Example: hmx play --advise hackmatrix-ppo-s0-001 --search 32
    """
    from hmx.play.keys import Keyboard

    keyboard, warnings = Keyboard(), list[str]()
    with progress(quiet) as report:
        from hmx.play.play import open_game, perform
        from hmx.play.saved_games import save, saved_game

        game, advise = open_game(request, warnings.append, lambda name: report(name, 0, 0))
    paths: list[Path] = []
    try:
        with leaving_by_ctrl_c(), saying_at_end(warnings):
            perform(game, keyboard, lambda ended: paths.append(save(saved_game(ended), request.games)), advise)
    finally:
        for path in paths:
            say("saved", f"{path}; review it with hmx review {shlex.quote(str(path))}")
