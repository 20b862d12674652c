"""Single keys from a terminal, and what they do in a game."""

from __future__ import annotations

import dataclasses
import io
import os
import pty
import re
import select
import sys
import termios
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from rich.console import Console

from hmx.cli import theatre
from hmx.cli.board import BoardView
from hmx.cli.keys import Echo, Keyboard
from hmx.cli.theatre import KEYS, MENU, perform, show
from hmx.envs.hackmatrix.rules.tables import ACTION_NAMES, NUM_ACTIONS, PROGRAMS
from hmx.errors import ExitCode
from hmx.jobs.simulator import Frame


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A terminal as standard input; what is written to this descriptor is typed."""
    typed, screen = pty.openpty()
    with os.fdopen(screen, "r") as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        yield typed
    os.close(typed)


@pytest.mark.parametrize(
    ("typed", "keys"),
    [
        (b"a", ["a"]),
        (b"\x1b[A\x1b[B\x1b[C\x1b[D", ["up", "down", "right", "left"]),
        (b"\x1bOA", ["up"]),
        (b"\n", ["enter"]),
        (b" q", [" ", "q"]),
        (b"\x1b", ["escape"]),
        (b"\x1b[Zx", ["escape", "x"]),
    ],
)
def test_keys_are_read_one_by_one(terminal, typed, keys):
    with Keyboard() as keyboard:
        os.write(terminal, typed)
        assert [keyboard.read(1.0) for _ in keys] == keys
        assert keyboard.read(0.0) is None


def test_keys_typed_into_a_live_panel_are_neither_shown_nor_kept(terminal):
    def echoes() -> bool:
        return bool(termios.tcgetattr(terminal)[3] & termios.ECHO)

    def shown() -> bytes:
        return os.read(terminal, 100) if select.select([terminal], [], [], 0.1)[0] else b""

    os.write(terminal, b"a\n")
    assert shown().startswith(b"a")  # the terminal of the test echoes
    echo = Echo()
    echo.off()
    os.write(terminal, b"b\n")
    assert not echoes() and shown() == b""
    echo.restore()
    assert echoes() and not select.select([sys.stdin], [], [], 0.1)[0]


@pytest.mark.parametrize("typed", [b"\x03", b"\x04"])
def test_ctrl_c_and_ctrl_d_interrupt(terminal, typed):
    with Keyboard() as keyboard:
        attributes = termios.tcgetattr(terminal)
        attributes[3] &= ~termios.ISIG  # so that Ctrl-C arrives as a character
        termios.tcsetattr(terminal, termios.TCSANOW, attributes)
        os.write(terminal, typed)
        with pytest.raises(KeyboardInterrupt):
            keyboard.read(1.0)


def test_terminal_is_restored_even_after_an_error(terminal):
    before = termios.tcgetattr(terminal)
    with pytest.raises(ZeroDivisionError), Keyboard():
        assert termios.tcgetattr(terminal) != before
        raise ZeroDivisionError
    assert termios.tcgetattr(terminal) == before


def test_every_action_has_its_own_key():
    assert set(KEYS.values()) == set(range(NUM_ACTIONS))
    assert len(set(MENU.values())) == len(MENU) == 23
    assert not set(MENU.values()) & set("wasdqn ")


POSITION: dict[str, Any] = {"player": {"row": 0, "col": 0}}


class FakeGame:
    """Counts what is asked of it; the third action ends the game."""

    def __init__(self) -> None:
        self.taken: list[int] = []
        self.frame = Frame(step=0, episode=0, position=POSITION, legal=(0, 4, 5))

    def name(self, action: int) -> str:
        return ACTION_NAMES[action]

    def act(self, action: int) -> None:
        self.taken.append(action)
        over = len(self.taken) == 3
        legal = () if over else (0, 4, 5)
        self.frame = Frame(
            step=len(self.taken), episode=self.frame.episode, position=POSITION, legal=legal, action=action,
            reward=0.0, outcome="died" if over else "",
        )  # fmt: skip

    def new(self) -> None:
        self.taken.append(-1)
        self.frame = Frame(step=0, episode=self.frame.episode + 1, position=POSITION, legal=(0, 4, 5))


class Typist:
    """A keyboard with all its keys decided, that ends with q."""

    def __init__(self, *keys: str) -> None:
        self.keys = [*keys, "q"]

    def __enter__(self) -> Typist:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def read(self, timeout: float | None = None) -> str:
        return self.keys.pop(0)


def played(*keys: str) -> tuple[list[int], str]:
    """What a game is asked for, and all that was on the screen."""
    game, screen = FakeGame(), io.StringIO()
    make = lambda **more: Console(file=screen, width=80, height=24, **more)  # noqa: E731
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(theatre, "Console", make)
        perform(lambda: game, Typist(*keys))  # type: ignore[arg-type]
    return game.taken, screen.getvalue()


@pytest.mark.parametrize(("key", "action"), [("up", 0), ("w", 0), (" ", 4), ("1", 5)])
def test_keys_become_actions(key, action):
    assert played(key)[0] == [action]


def test_impossible_action_is_reported_and_not_taken():
    taken, screen = played("down", "2")
    assert taken == []
    assert "down is not possible now" in screen and "pull is not possible now" in screen


def test_unknown_key_is_reported():
    taken, screen = played("z")
    assert taken == [] and "no action has that key" in screen


def test_after_the_end_only_new_game_and_quit_work():
    taken, screen = played("w", "w", "w", "w", "n", "w")
    assert taken == [0, 0, 0, -1, 0]
    assert "DIED" in screen and "the game is over" in screen and "new game" in screen


def test_usable_programs_are_shown_with_their_keys():
    assert "1 push" in played()[1]


def frames() -> list[Frame]:
    """Three frames of nothing."""
    return [Frame(step=i, episode=0, position=POSITION, legal=(0,), action=0, reward=0.0) for i in range(3)]


def test_frames_are_printed_in_order_without_a_terminal(capsys):
    show(frames, title="nothing", delay=100.0, step=False, json=False)
    out = capsys.readouterr().out
    assert out.count("nothing   episode 1   step") == 3 and "\x1b" not in out


@pytest.mark.parametrize(
    ("keys", "shown"),
    [
        (["q"], 1),
        (["enter", "q"], 2),
        ([" ", " ", "enter", "q"], 3),  # go on, pause, one step
    ],
)
def test_watch_can_pause_step_and_quit(monkeypatch, keys, shown):
    typist, screen = Typist(*keys), io.StringIO()
    monkeypatch.setattr(theatre, "Console", lambda **_: Console(file=screen, width=80, height=24, force_terminal=True))
    monkeypatch.setattr(theatre, "Keyboard", lambda: typist)
    monkeypatch.setattr("sys.stdin", type("Terminal", (), {"isatty": lambda self: True})())
    show(frames, title="nothing", delay=100.0, step=True, json=False)
    assert screen.getvalue().count("episode 1   step") == shown


def watched(monkeypatch: pytest.MonkeyPatch, shown: list[Frame], *keys: str) -> str:
    """What is on the screen while these keys are typed at a paused game."""
    typist, screen = Typist(*keys), io.StringIO()
    monkeypatch.setattr(theatre, "Console", lambda **_: Console(file=screen, width=80, height=24, force_terminal=True))
    monkeypatch.setattr(theatre, "Keyboard", lambda: typist)
    monkeypatch.setattr("sys.stdin", type("Terminal", (), {"isatty": lambda self: True})())
    show(lambda: shown, title="nothing", delay=0.4, step=True, json=False)
    return screen.getvalue()


def test_watch_can_step_back_and_jump_to_the_next_episode(monkeypatch):
    two = [*frames(), *(dataclasses.replace(frame, episode=1) for frame in frames())]
    text = watched(monkeypatch, two, "enter", "left", "n", "enter")
    assert re.findall(r"episode (\d)   step (\d)", text) == [("1", "0"), ("1", "1"), ("1", "0"), ("2", "0"), ("2", "1")]
    assert "episode 1: left at step 2" in text and "episode 2: left at step 1, stage 1, return +0.00" in text


def test_ctrl_c_quits_watch_quietly(monkeypatch, capsys):
    def interrupted() -> Any:
        yield frames()[0]
        raise KeyboardInterrupt

    with pytest.raises(typer.Exit) as left:
        show(interrupted, title="nothing", delay=0.0, step=False, json=False)
    assert left.value.exit_code == ExitCode.SIGINT
    assert "error" not in capsys.readouterr().err


def test_small_terminal_shows_the_number_of_hidden_lines(monkeypatch):
    screen = io.StringIO()
    console = Console(file=screen, width=60, height=14, force_terminal=True)
    theatre._draw(console, BoardView(frames()[0], title="small"), "help")
    text = screen.getvalue()
    assert "small" in text and re.search(r"terminal too small: \d+ lines hidden", text) and "help" in text
    assert text.count("\n") < 14


def test_resized_terminal_is_redrawn(monkeypatch):
    typist, screen = Typist(theatre.RESIZED, "q"), io.StringIO()
    monkeypatch.setattr(theatre, "Console", lambda **_: Console(file=screen, width=80, height=24, force_terminal=True))
    monkeypatch.setattr(theatre, "Keyboard", lambda: typist)
    monkeypatch.setattr("sys.stdin", type("Terminal", (), {"isatty": lambda self: True})())
    show(frames, title="nothing", delay=100.0, step=True, json=False)
    assert screen.getvalue().count("episode 1   step 0") == 2


def test_question_mark_shows_the_rules_and_every_program():
    taken, screen = played("?", "x", theatre.RESIZED, "x", "x", "w")
    assert taken == [0]  # the keys that turn pages take no action
    assert "Reach the EXIT" in screen and "terminal too small" not in screen
    assert all(
        re.search(rf"{re.escape(program.name.upper())} +\$\d e\d  {re.escape(program.effect)}", screen)
        for program in PROGRAMS
    )
    assert max(len(line) for line in theatre.RULES.split("\n")) <= 80


def test_watch_can_show_the_rules(monkeypatch):
    typist, screen = Typist("?", "x", "x", "x", "q"), io.StringIO()
    monkeypatch.setattr(theatre, "Console", lambda **_: Console(file=screen, width=80, height=24, force_terminal=True))
    monkeypatch.setattr(theatre, "Keyboard", lambda: typist)
    monkeypatch.setattr("sys.stdin", type("Terminal", (), {"isatty": lambda self: True})())
    show(frames, title="nothing", delay=100.0, step=True, json=False)
    assert "Reach the EXIT" in screen.getvalue() and screen.getvalue().count("episode 1   step 0") == 2
