"""`hmx watch`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hmx.cli import completion
from hmx.cli.options import MAX_SEED, OUTPUT_PANEL, Json, Sets, ask, configure, switch

if TYPE_CHECKING:
    from hmx.jobs.frames import Frame

GAME_PANEL = "Game"

ScenarioFile = Annotated[
    Path | None,
    typer.Option(
        "--scenario",
        metavar="FILE",
        help="Start from the position in a JSON file (docs/hackmatrix.md).",
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
            help="Run name in runs/, or path of a run folder. Not needed with --random.",
            show_default=False,
            autocompletion=completion.run_names,
        ),
    ] = None,
    random: Annotated[bool, switch("--random", "Watch random play instead of an agent.", GAME_PANEL)] = False,
    env: Annotated[
        str | None,
        ask("--env", "ID", "With --random: environment to watch (default: hackmatrix).", GAME_PANEL),
    ] = None,
    sets: Sets = None,
    scenario: ScenarioFile = None,
    seed: Seed = 0,
    episodes: Annotated[
        int,
        typer.Option(
            "--episodes", "-n", metavar="N", min=1, help="Number of episodes to show.", rich_help_panel=GAME_PANEL
        ),
    ] = 1,
    greedy: Annotated[
        bool, switch("--greedy", "Take the most probable action instead of sampling.", GAME_PANEL)
    ] = False,
    checkpoint: Annotated[
        int | None,
        typer.Option(
            "--checkpoint",
            metavar="UPDATE",
            help="Checkpoint to use (the latest by default).",
            autocompletion=completion.checkpoints,
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
            help="Pause between steps in a terminal.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = 0.4,
    step: Annotated[bool, switch("--step", "Wait for Enter before every step.", OUTPUT_PANEL)] = False,
    save: Annotated[
        Path | None,
        ask("--save", "FILE", "Save the episodes as an animation instead: .gif, .svg or .cast.", OUTPUT_PANEL),
    ] = None,
    force: Annotated[bool, switch("--force", "With --save: replace an existing file.", OUTPUT_PANEL)] = False,
    json: Json = False,
) -> None:
    """Watch an agent play in the terminal, or save what it plays as an animation.

    Draws the environment with the probability of every action, the value and the reward terms; one that cannot be drawn
    is shown as its observation. Keys: space pauses and continues, Enter takes one step, the left arrow one back, n
    jumps to the next episode, + and - change the speed, ? shows the rules, q quits. A GIF needs Pillow (extra `gif`);
    a .cast is for asciinema.

    Example: hmx watch hackmatrix-ppo-s0-001 --greedy

    Example: hmx watch hackmatrix-ppo-s0-001 --save episode.gif

    Example: hmx watch --random --env ./game.py --seed 3
    """
    from hmx.cli.recording import check_target
    from hmx.cli.recording import save as record
    from hmx.cli.theatre import show
    from hmx.jobs.scenario import read_scenario
    from hmx.jobs.watch import watch as frames_of

    if save is not None:
        check_target(save, force)
    title = "random play" if random else str(run)
    chosen = None
    if env is not None or sets:
        chosen = configure({"env.id": env} if env is not None else {}, sets, None, None).config.env
    position = None if scenario is None else read_scenario(scenario)

    def begin() -> Iterator[Frame]:
        return frames_of(
            run,
            random=random,
            env=chosen,
            position=position,
            seed=seed,
            episodes=episodes,
            greedy=greedy,
            checkpoint=checkpoint,
        )

    if save is not None:
        record(begin, save, title=title, delay=delay, json=json)
    else:
        show(begin, title=title, delay=delay, step=step, json=json)
