"""`hmx watch`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from hmx.cli import completion
from hmx.cli.boundary import check_reports, print_json, say
from hmx.cli.options import Json, Quiet, Sets, Start, argument, ask
from hmx.config.schema import ENV_IDS
from hmx.config.textfile import quoted
from hmx.console.progress import progress
from hmx.errors import ExitCode, HmxError
from hmx.play.request import GAME_PANEL, WatchRequest
from hmx.render.quantities import data_size

if TYPE_CHECKING:
    from hmx.play.frames import Frame

WatchedRun = Annotated[
    Path | None, argument("RUN", "Run name in runs/, or path of a run folder. Not needed with --random.")
]


def watch(
    request: WatchRequest,
    run: WatchedRun = None,
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
    quiet: Quiet = False,
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
    save = request.save
    if save is not None:
        check_target(save, request.force)
    title = "random play" if request.random else str(run)
    asked = {} if env is None else {"env.id": env}
    warnings: list[str] = []
    in_terminal = save is None and not json
    with progress(quiet) as report:
        from hmx.play.pixels import can_show
        from hmx.play.watch import show
        from hmx.play.watch import watch as frames_of

        chosen = Start(sets=sets).bound(asked).config.env if asked or sets else None
        pictures = can_show(Console()) if in_terminal else save is not None and save.suffix == ".gif"
        frames = frames_of(
            run, request, env=chosen, pictures=pictures, warn=warnings.append, phase=lambda name: report(name, 0, 0)
        )
        started = frames if save is None else list(frames)
    with saying_at_end(warnings):
        if save is not None:
            _save(list(started), save, title, request.delay, json)
        elif json:
            for frame in started:
                print_json(frame.to_json())
        else:
            with leaving_by_ctrl_c():
                show(started, title=title, delay=request.delay, step=request.step)


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
