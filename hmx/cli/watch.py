"""`hmx watch`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hmx.cli import completion
from hmx.cli.options import MAX_SEED, OUTPUT_PANEL, Json, switch

if TYPE_CHECKING:
    from hmx.jobs.frames import Frame

GAME_PANEL = "Game"

ScenarioFile = Annotated[
    Path | None,
    typer.Option(
        "--scenario",
        metavar="FILE",
        help="Start from the position in a JSON file.",
        rich_help_panel=GAME_PANEL,
    ),
]
Seed = Annotated[
    int,
    typer.Option("--seed", metavar="N", min=0, max=MAX_SEED, help="Seed of the game.", rich_help_panel=GAME_PANEL),
]


def watch(
    run: Annotated[
        Path | None,
        typer.Argument(
            metavar="RUN",
            help="A run: its name below runs/, or the path of its folder. Not needed with --random.",
            show_default=False,
            autocompletion=completion.run_names,
        ),
    ] = None,
    random: Annotated[bool, switch("--random", "Play at random instead of asking an agent.", GAME_PANEL)] = False,
    scenario: ScenarioFile = None,
    seed: Seed = 0,
    episodes: Annotated[
        int,
        typer.Option("--episodes", "-n", metavar="N", min=1, help="Episodes to show.", rich_help_panel=GAME_PANEL),
    ] = 1,
    greedy: Annotated[
        bool, switch("--greedy", "Take the most probable action instead of drawing one.", GAME_PANEL)
    ] = False,
    checkpoint: Annotated[
        int | None,
        typer.Option(
            "--checkpoint",
            metavar="UPDATE",
            help="Which checkpoint; the newest by default.",
            show_default=False,
            rich_help_panel=GAME_PANEL,
        ),
    ] = None,
    delay: Annotated[
        float,
        typer.Option(
            "--delay",
            metavar="SECONDS",
            min=0.0,
            help="Pause between two steps, in a terminal.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = 0.4,
    step: Annotated[bool, switch("--step", "Wait for Enter before every step.", OUTPUT_PANEL)] = False,
    json: Json = False,
) -> None:
    """Watch an agent play in the terminal.

    Draws the board, and beside it the probability of every action, the value and the parts of the reward. While it
    plays: space pauses and goes on, Enter takes one step, q ends.
    """
    from hmx.cli.theatre import show
    from hmx.jobs.scenario import read_scenario
    from hmx.jobs.watch import watch as frames_of

    position = None if scenario is None else read_scenario(scenario)

    def begin() -> Iterator[Frame]:
        return frames_of(
            run, random=random, position=position, seed=seed, episodes=episodes, greedy=greedy, checkpoint=checkpoint
        )

    show(begin, title="random play" if random else str(run), delay=delay, step=step, json=json)
