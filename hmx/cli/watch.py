"""`hmx watch` and `hmx play`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

from hmx.cli import completion
from hmx.cli.options import Json, Sets, argument, ask, configure, with_options
from hmx.config.option import MAX_SEED, OUTPUT_PANEL, checkpoint_option, opt, search_option
from hmx.config.schema import ENV_IDS

GAME_PANEL = "Game"

ScenarioFile = Annotated[
    Path | None, ask("--scenario", "FILE", "Start from the position in a JSON file (docs/hackmatrix.md).", GAME_PANEL)
]


@dataclass(frozen=True, kw_only=True)
class GameOptions:
    """The options of a game that is played or watched."""

    seed: int = opt(0, "seed of the game", ge=0, le=MAX_SEED, panel=GAME_PANEL)
    search: int | None = search_option(GAME_PANEL)
    checkpoint: int | None = checkpoint_option(GAME_PANEL)


@dataclass(frozen=True, kw_only=True)
class WatchOptions(GameOptions):
    """What to watch."""

    random: bool = opt(False, "watch random play instead of an agent", panel=GAME_PANEL)
    episodes: int = opt(1, "number of episodes to show", ge=1, short="-n", panel=GAME_PANEL)
    greedy: bool = opt(False, "take the most probable action instead of sampling", panel=GAME_PANEL)


@dataclass(frozen=True, kw_only=True)
class PlayOptions(GameOptions):
    """The partner of the game."""

    advise: str | None = opt(None, "show what the agent of a run would do", metavar="RUN", panel=GAME_PANEL)


@dataclass(frozen=True, kw_only=True)
class ShowOptions:
    """How to show it."""

    delay: float = opt(0.4, "pause between steps in a terminal", "seconds", ge=0, metavar="SECONDS", panel=OUTPUT_PANEL)
    step: bool = opt(False, "wait for Enter before every step", panel=OUTPUT_PANEL)
    force: bool = opt(False, "with --save: replace an existing file", panel=OUTPUT_PANEL)


@with_options()
def watch(
    options: WatchOptions,
    shown: ShowOptions,
    run: Annotated[
        Path | None, argument("RUN", "Run name in runs/, or path of a run folder. Not needed with --random.")
    ] = None,
    env: Annotated[
        str | None,
        ask(
            "--env",
            "ID",
            "With --random: environment to watch (default: hackmatrix).",
            GAME_PANEL,
            autocompletion=completion.offer(ENV_IDS),
        ),
    ] = None,
    sets: Sets = None,
    scenario: ScenarioFile = None,
    save: Annotated[
        Path | None,
        ask("--save", "FILE", "Save the episodes as an animation instead: .gif, .svg, .html or .cast.", OUTPUT_PANEL),
    ] = None,
    json: Json = False,
) -> None:
    """Watch an agent play in the terminal, or save what it plays as an animation.

    Shows the environment, the probability of every action, the value and the reward terms. An environment without a
    drawing is shown as its observation. Keys: space pauses and continues, Enter takes one step, the left arrow goes
    back one step, n jumps to the next episode, + and - change the speed, ? shows the rules, q quits. A GIF needs Pillow
    (extra `gif`); asciinema plays a .cast.

    Example: hmx watch hackmatrix-ppo-s0-001 --greedy

    Example: hmx watch hackmatrix-ppo-s0-001 --search 32 --save episode.gif

    Example: hmx watch --random --env ./game.py --seed 3
    """
    from hmx.cli.progress import status

    with status("starting"):  # importing JAX takes seconds
        from hmx.cli.recording import check_target
        from hmx.cli.recording import save as record
        from hmx.cli.theatre import show
        from hmx.jobs.watch import watch as frames_of

    if save is not None:
        check_target(save, shown.force)
    title = "random play" if options.random else str(run)
    chosen = None
    if env is not None or sets:
        chosen = configure({"env.id": env} if env is not None else {}, sets, None, None).config.env

    begin = partial(frames_of, run, **vars(options), env=chosen, scenario=scenario)
    if save is not None:
        record(begin, save, title=title, delay=shown.delay, json=json)
    else:
        show(begin, title=title, delay=shown.delay, step=shown.step, json=json)


@with_options()
def play(options: PlayOptions, scenario: ScenarioFile = None) -> None:
    """Play HackMatrix yourself.

    Keys: arrows or w a s d move and attack, space siphons, the key next to a program runs it, ? shows the
    rules, q quits.

    Example: hmx play --seed 3

    Example: hmx play --scenario docs/scenarios/first-siphon.json

    Example: hmx play --advise hackmatrix-ppo-s0-001 --search 32
    """
    from hmx.cli.keys import Keyboard
    from hmx.cli.progress import status

    with status("starting"):  # importing JAX takes seconds
        from hmx.cli.theatre import perform
        from hmx.jobs.watch import open_game

    keyboard = Keyboard()
    perform(partial(open_game, **vars(options), scenario=scenario), keyboard)
