"""Frames of HackMatrix in the terminal, for watching an agent or playing a game."""

from __future__ import annotations

import contextlib
import itertools
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.segment import Segment, Segments
from rich.text import Text

from hmx.cli import keys
from hmx.cli.board import BoardView
from hmx.cli.boundary import print_json
from hmx.cli.keys import RESIZED, Keyboard
from hmx.cli.progress import status
from hmx.envs.hackmatrix.rules.tables import FIRST_PROGRAM, PROGRAMS, SIPHON
from hmx.errors import ExitCode, counted

if TYPE_CHECKING:
    from hmx.jobs.simulator import Frame, Simulator

COMPILING = "compiling the game; the next start is faster"

# One key for each program, always the same: digits first, then letters without another meaning here.
PROGRAM_KEYS = "1234567890ertyuiopfghjk"
MENU = {FIRST_PROGRAM + number: key for number, key in enumerate(PROGRAM_KEYS)}
_MOVES = {"up": 0, "w": 0, "down": 1, "s": 1, "left": 2, "a": 2, "right": 3, "d": 3, " ": SIPHON}
KEYS = {**_MOVES, **{key: action for action, key in MENU.items()}}
WATCH_HELP = "space pause  Enter step  left back  n next episode  + - speed  ? rules  q quit"
HELP = "arrows/wasd move, shoot  space siphon  1-9 e-k programs  n new  ? rules  q quit"
PROGRAM_HEAD = "   program cost   effect (a hit takes off as much hp as your attack, and stuns)"
RULES = """\
Goal       Reach the EXIT of 8 stages. Without hit points (hp) the game is lost.

Your turn  Walk one cell, or shoot: if an enemy or transmission is in line, its
           direction hits the first one, however far; a survivor is stunned.
           Blocks stop you and your shots. Then the enemies act. Programs cost
           no turn, except WAIT.

Siphon     Walk over S to pick up data siphons. Space uses one up: from your
           cell and the 4 beside it you get credits ($), energy (e), the points
           of data blocks [n], and the programs that blocks name. Blocks stay.
           A block calls !n transmissions (t): enemies that arrive a turn later.

Enemies    v virus 2 hp, 2 cells a turn   d daemon 3 hp
           g glitch 2 hp, enters blocks   c cryptog 2 hp, hidden unless in line
           Beside you, each takes 1 of your hp a turn. * is stunned for a turn.

Stages     The exit heals 1 hp and leads to the next stage. You keep everything;
           the enemies keep chasing you."""


def show(begin: Callable[[], Iterable[Frame]], *, title: str, delay: float, step: bool, json: bool) -> None:
    """Draw all frames that `begin` returns, which may start slowly, and summarise every episode.

    In a terminal each frame replaces the previous one; elsewhere they are printed in order. With `json` each frame is a
    line.
    """
    if json:
        for frame in begin():
            print_json(frame.to_json())
            sys.stdout.flush()
        return
    console = Console(highlight=False)
    with status(COMPILING):
        frames = begin()
    live = console.is_terminal and sys.stdin.isatty()
    with leaving_by_ctrl_c():
        if live or step:
            with Keyboard() as keyboard:
                seen = _watch(frames, keyboard, console, title, delay, step)
            ends = [one for one, after in itertools.zip_longest(seen, seen[1:]) if after is None or not after.step]
            if len(ends) > 1 or not ends[0].outcome:  # otherwise it is still on the screen
                console.print("\n".join(map(summary, ends)))
            return
        for number, frame in enumerate(frames):
            if console.is_terminal:
                _draw(console, view(frame, title))
                time.sleep(delay)
            else:
                console.print(*([] if number == 0 else ["\n"]), view(frame, title), sep="")
            if frame.outcome:
                console.print(summary(frame))


def _watch(
    frames: Iterable[Frame], keyboard: Keyboard, console: Console, title: str, delay: float, paused: bool
) -> list[Frame]:
    """Play frames under control of the keys, and return all frames reached."""
    source = iter(frames)
    seen: list[Frame] = []
    at, drawn, end = 0, -1, 0.0

    def reached(number: int) -> bool:
        seen.extend(itertools.islice(source, max(number + 1 - len(seen), 0)))
        return number < len(seen)

    while reached(at):
        if drawn != at:
            drawn, end = at, time.monotonic() + delay
            _draw(console, view(seen[at], title), WATCH_HELP, summary(seen[at]) if seen[at].outcome else "")
        match keyboard.read(None if paused else max(end - time.monotonic(), 0.0)):
            case "q" | "escape":
                break
            case None | "enter" | "right":
                at += 1
            case " ":
                paused = not paused
                at += not paused
            case "left" | "b":
                paused, at = True, max(at - 1, 0)
            case "n":
                at += 1
                while reached(at) and seen[at].step:
                    at += 1
            case "+" | "=":
                delay /= 1.5
            case "-":
                delay *= 1.5
            case "?":
                _explain(console, keyboard)
                drawn = -1
            case keys.RESIZED:
                drawn = -1
    return seen


def view(frame: Frame, title: str) -> BoardView:
    """Return the text of a frame for a terminal."""
    return BoardView(frame, title=f"{title}   episode {frame.episode + 1}   step {frame.step}")


def summary(frame: Frame) -> str:
    """Return a line about an episode, from the latest of its frames."""
    how = f"{frame.outcome} after" if frame.outcome else "left at"
    stage = "" if frame.picture else f", stage {frame.position.get('stage', 1)}"
    return f"episode {frame.episode + 1}: {how} step {frame.step}{stage}, return {frame.episode_return:+.2f}"


@contextlib.contextmanager
def leaving_by_ctrl_c() -> Iterator[None]:
    """Exit quietly on Ctrl-C, which quits like `q`, with the exit code of the signal."""
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(int(ExitCode.SIGINT)) from None


def perform(open_game: Callable[[], Simulator], keyboard: Keyboard) -> None:
    """Let a person play until q."""
    console = Console(highlight=False)
    with status(COMPILING):
        game = open_game()
    note = ""
    with leaving_by_ctrl_c(), keyboard:
        while True:
            frame = game.frame
            view = BoardView(frame, reveal=False, keys=MENU, title=f"game {frame.episode + 1}   step {frame.step}")
            _draw(console, view, HELP, note or ("n new game   q quit" if frame.outcome else ""))
            key = keyboard.read()
            if key in ("q", "escape"):
                return
            if key == "?":
                _explain(console, keyboard)
            elif key == "n":
                game.new()
                note = "new game"
            elif key != RESIZED:
                note = _act(game, KEYS.get(str(key)))


def _explain(console: Console, keyboard: Keyboard) -> None:
    """Show the rules, then the programs, page by page; any key turns the page."""
    rows = [
        f"{key}  {program.name.upper():7} ${program.credits} e{program.energy}  {program.effect}"
        for key, program in zip(PROGRAM_KEYS, PROGRAMS, strict=True)
    ]
    for page in (RULES.split("\n"), [PROGRAM_HEAD, *rows[:12]], [PROGRAM_HEAD, *rows[12:]]):
        text = Text("\n".join(page), no_wrap=True, overflow="ellipsis")
        _draw(console, text, "any key: next page")
        while keyboard.read() == RESIZED:
            _draw(console, text, "any key: next page")


def _act(game: Simulator, action: int | None) -> str:
    if game.frame.outcome:
        return "the game is over; press n for a new one"
    if action is None:
        return "no action has that key"
    if action not in game.frame.legal:
        return f"{game.frame.names[action]} is not possible now"
    game.act(action)
    return ""


def _draw(console: Console, view: BoardView | Text, *footer: str) -> None:
    """Draw on a clear screen; if it is too small, omit the lowest lines and print a note."""
    lines = console.render_lines(view, pad=False)
    room = console.height - len(footer) - 1
    console.clear()
    shown = lines if len(lines) <= room else lines[: max(room - 1, 0)]
    console.print(Segments([segment for line in shown for segment in (*line, Segment.line())]), end="")
    if len(shown) < len(lines):
        missing = counted(len(lines) - len(shown), "line")
        console.print(Text(f"terminal too small: {missing} hidden", "yellow", no_wrap=True, overflow="crop"))
    for text, style in zip(footer, ("dim", "yellow"), strict=False):
        console.print(Text(text, style, no_wrap=True, overflow="ellipsis"))
