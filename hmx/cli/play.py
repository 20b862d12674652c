"""`hmx play`."""

from __future__ import annotations

from hmx.cli.watch import ScenarioFile, Seed


def play(scenario: ScenarioFile = None, seed: Seed = 0) -> None:
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

    keyboard = Keyboard()
    position = None if scenario is None else read_scenario(scenario)
    perform(lambda: open_game(seed=seed, position=position), keyboard)
