"""`hmx watch`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from hmx.cli import completion
from hmx.cli.boundary import check_reports, print_json, say
from hmx.cli.options import Json, Sets, argument, ask, configure, with_options
from hmx.config.option import MAX_SEED, OUTPUT_PANEL, checkpoint_option, opt, search_option
from hmx.config.schema import ENV_IDS
from hmx.config.textfile import quoted
from hmx.console.progress import status
from hmx.errors import ExitCode, HmxError
from hmx.render.quantities import data_size

if TYPE_CHECKING:
    from hmx.play.frames import Frame

COMPILING = "compiling the game; the next start is faster"

GAME_PANEL = "Game"


@dataclass(frozen=True, kw_only=True)
class GameOptions:
    """The options of a game that is played or watched."""

    seed: int = opt(0, "seed of the game", ge=0, le=MAX_SEED, panel=GAME_PANEL)
    search: int | None = search_option(GAME_PANEL)
    checkpoint: int | None = checkpoint_option(GAME_PANEL)
    scenario: Path | None = opt(
        None, "start from the position in a JSON file (docs/hackmatrix.md)", metavar="FILE", panel=GAME_PANEL
    )


@dataclass(frozen=True, kw_only=True)
class WatchOptions(GameOptions):
    """What to watch."""

    random: bool = opt(False, "watch random play instead of an agent", panel=GAME_PANEL)
    episodes: int = opt(1, "number of episodes to show", ge=1, short="-n", panel=GAME_PANEL)
    greedy: bool = opt(False, "take the most probable action instead of sampling", panel=GAME_PANEL)


@dataclass(frozen=True, kw_only=True)
class ShowOptions:
    """How to show it."""

    delay: float = opt(0.4, "pause between steps in a terminal", "seconds", ge=0, metavar="SECONDS", panel=OUTPUT_PANEL)
    step: bool = opt(False, "wait for Enter before every step", panel=OUTPUT_PANEL)
    save: Path | None = opt(
        None, "save the episodes as an animation instead: .gif, .svg or .html", metavar="FILE", panel=OUTPUT_PANEL
    )
    force: bool = opt(False, "with --save: replace an existing file", panel=OUTPUT_PANEL)


@with_options()
def watch(
    options: WatchOptions,
    shown: ShowOptions,
    run: Annotated[
        Path | None,
        argument(
            "RUN",
            "Run name in runs/, or path of a run folder. Not needed with --random.",
        ),
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
    json: Json = False,
) -> None:
    """Watch an agent play in the terminal, or save what it plays as an animation.

    Shows the environment, the probability of every action, the value and the reward terms. A simulator that draws
    (render_mode rgb_array) is shown as pictures in a terminal with 256 colours or more, any other environment without a
    drawing as its observation. Keys: space pauses and continues, Enter takes one step, the left arrow goes
    back one step, n jumps to the next episode, + and - change the speed, ? shows the rules, q quits. A GIF needs Pillow
    (extra `gif`).

    Example: hmx watch hackmatrix-ppo-s0-001 --greedy

    Example: hmx watch hackmatrix-ppo-s0-001 --search 32 --save episode.gif

    Example: hmx watch --random --env ./game.py --seed 3
    """
    with status("starting"):  # importing JAX takes seconds
        from hmx.play.pixels import can_show
        from hmx.play.watch import show
        from hmx.play.watch import watch as frames_of

    save = shown.save
    if save is not None:
        check_target(save, shown.force)
    title = "random play" if options.random else str(run)
    chosen = None
    if env is not None or sets:
        chosen = configure({"env.id": env} if env is not None else {}, sets, None, None).config.env

    warnings: list[str] = []
    in_terminal = save is None and not json
    pictures = can_show(Console()) if in_terminal else save is not None and save.suffix == ".gif"
    begin = partial(frames_of, run, **vars(options), env=chosen, pictures=pictures, warn=warnings.append)
    if save is not None:
        with status(COMPILING):
            frames = list(begin())
        with saying_at_end(warnings):
            _save(frames, save, title, shown.delay, json)
    elif json:
        with status(COMPILING):
            started = begin()
        with saying_at_end(warnings):
            for frame in started:
                print_json(frame.to_json())
                sys.stdout.flush()
    else:
        with status(COMPILING):
            started = begin()
        with leaving_by_ctrl_c(), saying_at_end(warnings):
            show(started, title=title, delay=shown.delay, step=shown.step)


def check_target(path: Path, force: bool) -> None:
    """Refuse, before anything is compiled, a file that cannot be saved."""
    from hmx.play.recording import FORMATS

    shown = quoted(str(path))
    if path.suffix not in FORMATS:
        raise HmxError(f"cannot save {shown}: expected a name that ends in {', '.join(FORMATS)}", "--save episode.gif")
    check_reports(path)
    if path.exists() and not force:
        raise HmxError(f"cannot save {shown}: the file exists", "replace it with --force, or choose another name")
    if path.suffix == ".gif":
        try:
            import PIL.ImageFont  # noqa: F401
        except ImportError:
            hint = "pip install pillow, or save as .svg or .html"
            raise HmxError(f"cannot save {shown}: a GIF needs Pillow", hint) from None


def _save(frames: Sequence[Frame], path: Path, title: str, delay: float, json: bool) -> None:
    """Save frames as an animation, and sum up every episode."""
    from hmx.play.recording import save
    from hmx.play.screen import summary

    size = save(frames, path, title=title, delay=delay)
    if json:
        print_json({"saved": str(path), "frames": len(frames), "bytes": size})
        return
    for frame in frames:
        if frame.outcome:
            sys.stdout.write(f"{summary(frame)}\n")
    say("wrote", f"{path} ({len(frames):,} frames, {data_size(size)})")


@contextlib.contextmanager
def saying_at_end(warnings: Sequence[str]) -> Iterator[None]:
    """Show warnings after the block, which may clear the screen."""
    try:
        yield
    finally:
        for text in warnings:
            say("warning", text)


@contextlib.contextmanager
def leaving_by_ctrl_c() -> Iterator[None]:
    """Exit quietly on Ctrl-C, which is a way to leave like `q`, with the exit code of the signal."""
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(int(ExitCode.SIGINT)) from None
