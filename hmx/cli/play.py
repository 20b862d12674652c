"""`hmx play`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from hmx.cli import completion
from hmx.cli.options import ask, with_options
from hmx.cli.watch import GAME_PANEL, GameOptions, ScenarioFile


@with_options()
def play(
    options: GameOptions,
    scenario: ScenarioFile = None,
    advise: Annotated[
        Path | None,
        ask(
            "--advise",
            "RUN",
            "Show what the agent of a run would do.",
            GAME_PANEL,
            autocompletion=completion.run_names,
        ),
    ] = None,
) -> None:
    """Play HackMatrix yourself.

    Keys: arrows or w a s d move and attack, space siphons, the key next to a program runs it, ? shows the
    rules, q quits.

    Example: hmx play --seed 3

    Example: hmx play --scenario docs/scenarios/first-siphon.json

    Example: hmx play --advise hackmatrix-ppo-s0-001 --search 32
    """
    from hmx.cli.keys import Keyboard
    from hmx.cli.progress import status
    from hmx.jobs.scenario import read_scenario

    with status("starting"):  # importing JAX takes seconds
        from hmx.cli.theatre import perform
        from hmx.jobs.watch import open_game

    keyboard = Keyboard()
    position = None if scenario is None else read_scenario(scenario)
    perform(lambda: open_game(**vars(options), position=position, advise=advise), keyboard)
