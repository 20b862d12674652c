"""`hmx play`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from hmx.cli import completion
from hmx.cli.options import Typed, ask, with_options
from hmx.cli.watch import GAME_PANEL, GameOptions, ScenarioFile
from hmx.config.fields import fields_of
from hmx.config.load import read_request


@with_options(fields_of(GameOptions).values())
def play(
    typed: Typed,
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

    options, keyboard = read_request(GameOptions, typed), Keyboard()
    position = None if scenario is None else read_scenario(scenario)
    perform(lambda: open_game(**vars(options), position=position, advise=advise), keyboard)
