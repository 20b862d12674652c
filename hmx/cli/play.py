"""`hmx play`."""

from __future__ import annotations

from hmx.cli.options import Typed, with_options
from hmx.cli.watch import GameOptions, ScenarioFile
from hmx.config.fields import fields_of
from hmx.config.load import read_request


@with_options(fields_of(GameOptions).values())
def play(typed: Typed, scenario: ScenarioFile = None) -> None:
    """Play HackMatrix yourself.

    Keys: arrows or w a s d move and attack, space siphons, the key next to a program runs it, ? shows the
    rules, q quits.

    Example: hmx play --seed 3

    Example: hmx play --scenario docs/scenarios/first-siphon.json
    """
    from hmx.cli.keys import Keyboard
    from hmx.cli.theatre import perform
    from hmx.jobs.play import open_game
    from hmx.jobs.scenario import read_scenario

    options, keyboard = read_request(GameOptions, typed), Keyboard()
    position = None if scenario is None else read_scenario(scenario)
    perform(lambda: open_game(seed=options.seed, position=position), keyboard)
