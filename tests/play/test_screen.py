"""What a terminal shows while a game is watched or played, and what keys do."""

from __future__ import annotations

import dataclasses
import io
import re
from typing import Any

import pytest
from rich.console import Console

from hmx.envs.hackmatrix.rules.tables import ACTION_NAMES, NUM_ACTIONS, PROGRAMS
from hmx.play import play, watch
from hmx.play.boards import BoardView
from hmx.play.frames import Frame
from hmx.play.keys import RESIZED
from hmx.play.play import KEYS, MENU, perform
from hmx.play.screen import RULES, draw
from hmx.play.watch import show


def test_every_action_has_its_own_key():
    assert set(KEYS.values()) == set(range(NUM_ACTIONS))
    assert len(set(MENU.values())) == len(MENU) == 23
    assert not set(MENU.values()) & set("wasdqn ")


POSITION: dict[str, Any] = {"player": {"row": 0, "col": 0}}


class FakeGame:
    """Counts what is asked of it; the third action ends the game."""

    actions: tuple[int, ...] = ()  # no game to leave

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
        patch.setattr(play, "Console", make)
        perform(game, Typist(*keys), lambda ended: None)  # type: ignore[arg-type]
    return game.taken, screen.getvalue()


@pytest.mark.parametrize(("key", "action"), [("up", 0), ("w", 0), (" ", 4), ("1", 5)])
def test_keys_become_actions(key, action):
    assert played(key)[0] == [action]


def test_impossible_action_is_reported_and_not_taken():
    taken, screen = played("down", "2")
    assert taken == []
    assert (
        "down is not possible: the board ends there" in screen and "PULL is not possible: you do not own it" in screen
    )


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


def test_each_step_is_a_line_without_a_terminal(capsys):
    *first, last = frames()
    ended = dataclasses.replace(last, outcome="died", reward=-1.5, episode_return=-1.5, value=0.25)
    show([*first, ended], title="nothing", delay=100.0, step=False)
    assert capsys.readouterr().out.splitlines() == [
        "episode 1  step    1  up            reward +0.00  return +0.00",
        "episode 1  step    2  up            reward -1.50  return -1.50  value +0.25",
        "episode 1: died after step 2, stage 1, return -1.50",
    ]


@pytest.mark.parametrize(
    ("keys", "shown"),
    [
        (["q"], 1),
        (["enter", "q"], 2),
        ([" ", " ", "enter", "q"], 3),  # go on, pause, one step
    ],
)
def test_watch_can_pause_step_and_quit(monkeypatch, keys, shown):
    text = watched(monkeypatch, frames(), *keys)
    assert text.count("episode 1   step") == shown


def watched(monkeypatch: pytest.MonkeyPatch, shown: list[Frame], *keys: str) -> str:
    """What is on the screen while these keys are typed at a paused game."""
    typist, screen = Typist(*keys), io.StringIO()
    monkeypatch.setattr(watch, "Console", lambda **_: Console(file=screen, width=80, height=24, force_terminal=True))
    monkeypatch.setattr(watch, "Keyboard", lambda: typist)
    monkeypatch.setattr("sys.stdin", type("Terminal", (), {"isatty": lambda self: True})())
    show(shown, title="nothing", delay=0.4, step=True)
    return screen.getvalue()


def test_watch_can_step_back_and_jump_to_the_next_episode(monkeypatch):
    two = [*frames(), *(dataclasses.replace(frame, episode=1) for frame in frames())]
    text = watched(monkeypatch, two, "enter", "left", "n", "enter")
    assert re.findall(r"episode (\d)   step (\d)", text) == [("1", "0"), ("1", "1"), ("1", "0"), ("2", "0"), ("2", "1")]
    assert "episode 1: left at step 2" in text and "episode 2: left at step 1, stage 1, return +0.00" in text


def test_small_terminal_shows_the_number_of_hidden_lines():
    screen = io.StringIO()
    console = Console(file=screen, width=60, height=14, force_terminal=True)
    draw(console, BoardView(frames()[0], title="small"), "help")
    text = screen.getvalue()
    assert "small" in text and re.search(r"terminal too small: \d+ lines hidden", text) and "help" in text
    assert text.count("\n") < 14


def test_resized_terminal_is_redrawn(monkeypatch):
    text = watched(monkeypatch, frames(), RESIZED, "q")
    assert text.count("episode 1   step 0") == 2


def test_question_mark_shows_the_rules_and_every_program():
    taken, screen = played("?", "x", RESIZED, "x", "x", "w")
    assert taken == [0]  # the keys that turn pages take no action
    assert "Reach the EXIT" in screen and "terminal too small" not in screen
    assert all(
        re.search(rf"{re.escape(program.name.upper())} +\$\d e\d  {re.escape(program.effect)}", screen)
        for program in PROGRAMS
    )
    assert max(len(line) for line in RULES.split("\n")) <= 80


def test_watch_can_show_the_rules(monkeypatch):
    text = watched(monkeypatch, frames(), "?", "x", "x", "x", "q")
    assert "Reach the EXIT" in text and text.count("episode 1   step 0") == 2
