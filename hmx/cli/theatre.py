"""Frames on the screen: played by an agent and watched, or played by a person."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from hmx.cli.board import BoardView
from hmx.cli.keys import Keyboard
from hmx.game.tables import FIRST_PROGRAM, SIPHON

if TYPE_CHECKING:
    from hmx.jobs.frames import Frame
    from hmx.jobs.play import Game

# One key for each program, always the same: digits first, then letters that mean nothing else here.
PROGRAM_KEYS = "1234567890ertyuiopfghjk"
MENU = {FIRST_PROGRAM + number: key for number, key in enumerate(PROGRAM_KEYS)}
_MOVES = {"up": 0, "w": 0, "down": 1, "s": 1, "left": 2, "a": 2, "right": 3, "d": 3, " ": SIPHON}
KEYS = {**_MOVES, **{key: action for action, key in MENU.items()}}
WATCH_HELP = "space pause  Enter one step  q end"
HELP = "arrows or wasd move, attack  space siphon  1-9 e-z programs  n new game  q end"


def show(begin: Callable[[], Iterable[Frame]], *, title: str, delay: float, step: bool, json: bool) -> None:
    """Draws frame after frame of what `begin` returns; it may take its time.

    In a terminal each frame replaces the one before; elsewhere they follow one another. With `json` each is a line.
    """
    if json:
        _print_lines(begin())
        return
    console = Console(highlight=False)
    with _status(console):
        frames = begin()
    live = console.is_terminal and sys.stdin.isatty()
    with Keyboard() if live or step else contextlib.nullcontext() as keyboard:
        first = True
        for frame in frames:
            if console.is_terminal:
                console.clear()
            elif not first:
                console.print()
            first = False
            console.print(BoardView(frame, title=f"{title}   episode {frame.episode + 1}   step {frame.step}"))
            if keyboard is not None:
                console.print(Text(WATCH_HELP, "dim"))
                step, go_on = _pause(keyboard, delay, step)
                if not go_on:
                    return
            elif console.is_terminal:
                time.sleep(delay)


def _pause(keyboard: Keyboard, delay: float, step: bool) -> tuple[bool, bool]:
    """Waits for the time or the key that goes on; returns whether to step by key from now on, and to go on at all."""
    end = time.monotonic() + delay
    while True:
        key = keyboard.read(None if step else max(end - time.monotonic(), 0.0))
        if key is None:
            return step, True
        if key in ("q", "escape"):
            return step, False
        if key == " ":
            step = not step
        if key == "enter" or (key == " " and not step):
            return step, True


def _print_lines(frames: Iterable[Frame]) -> None:
    for frame in frames:
        sys.stdout.write(json.dumps(frame.to_json()) + "\n")
        sys.stdout.flush()


@contextlib.contextmanager
def _status(console: Console) -> Iterator[None]:
    if console.is_terminal:
        with console.status("compiling the game; the next start is quicker"):
            yield
    else:
        yield


def perform(open_game: Callable[[], Game], keyboard: Keyboard) -> None:
    """A game with a person at the keys, until q."""
    console = Console(highlight=False)
    with _status(console):
        game = open_game()
    note = ""
    with keyboard:
        while True:
            _draw(console, game.frame, note)
            key = keyboard.read()
            if key in ("q", "escape"):
                return
            if key == "n":
                game.new()
                note = "a new game"
                continue
            note = _act(game, KEYS.get(str(key)))


def _act(game: Game, action: int | None) -> str:
    if game.frame.outcome:
        return "the game is over: n starts a new one"
    if action is None:
        return "that key does nothing"
    if action not in game.frame.legal:
        return f"{game.name(action)} is not possible now"
    game.act(action)
    return ""


def _draw(console: Console, frame: Frame, note: str) -> None:
    console.clear()
    console.print(BoardView(frame, reveal=False, keys=MENU, title=f"game {frame.episode + 1}   step {frame.step}"))
    console.print(Text(HELP, "dim"))
    if frame.outcome:
        note = note or "n new game   q end"
    console.print(Text(note, "yellow"))
