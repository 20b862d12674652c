"""The board, drawn from a position."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from hmx.envs.hackmatrix.rules.position import visible
from hmx.envs.hackmatrix.rules.tables import ACTION_NAMES
from hmx.play.boards import BoardView
from hmx.play.frames import Frame

POSITION: dict[str, Any] = {
    "player": {
        "row": 5, "col": 0, "hp": 2, "credits": 7, "energy": 9, "dataSiphons": 3, "attackDamage": 4, "score": 42,
    },
    "enemies": [
        {"type": "virus", "row": 5, "col": 5, "hp": 2, "stunned": True},
        {"type": "daemon", "row": 2, "col": 2, "hp": 3, "stunned": False},
        {"type": "glitch", "row": 2, "col": 2, "hp": 1, "stunned": False},
        {"type": "cryptog", "row": 1, "col": 4, "hp": 1, "stunned": False},
    ],
    "transmissions": [{"row": 4, "col": 4, "turnsRemaining": 3, "enemyType": "virus"}],
    "blocks": [
        {"row": 3, "col": 1, "type": "data", "points": 8, "spawnCount": 6, "siphoned": False},
        {"row": 3, "col": 3, "type": "program", "spawnCount": 0, "siphoned": True, "programActionIndex": 23},
        {"row": 2, "col": 2, "type": "question-program", "points": 0, "spawnCount": 4, "programActionIndex": 5},
    ],
    "resources": [
        {"row": 0, "col": 1, "credits": 2, "energy": 0, "dataSiphon": False},
        {"row": 0, "col": 2, "credits": 0, "energy": 1, "dataSiphon": False},
        {"row": 0, "col": 3, "credits": 0, "energy": 0, "dataSiphon": True},
    ],
    "exit": {"row": 0, "col": 0},
    "stage": 3,
    "turn": 12,
    "showActivated": False,
    "scheduledTasksDisabled": True,
    "ownedPrograms": [5, 27],
}  # fmt: skip


def frame(**changes: Any) -> Frame:
    """A frame in the middle of an episode."""
    probs = [0.0] * 28
    probs[1], probs[4] = 0.75, 0.25
    given = {
        "step": 4, "episode": 0, "position": POSITION, "legal": (1, 4), "action": 3, "probs": tuple(probs),
        "value": 2.5, "reward": 0.29, "terms": {"kills": 0.3, "step_penalty": -0.01, "victory": 0.0},
        "episode_return": -1.5,
    }  # fmt: skip
    return Frame(**{**given, **changes})


def draw(view: BoardView, width: int = 80, height: int = 24, **more: Any) -> str:
    """The view as text."""
    console = Console(file=io.StringIO(), width=width, height=height, **more)
    console.print(view)
    return console.file.getvalue()


def cells(text: str) -> dict[tuple[int, int], tuple[str, str]]:
    """Board cell -> its two lines."""
    rows = [line.split("│")[2:8] for line in text.splitlines() if line.startswith("│")][:12]
    found = {}
    for number in range(6):
        for col in range(6):
            found[5 - number, col] = (rows[2 * number][col].strip(), rows[2 * number + 1][col].strip())
    return found


@pytest.mark.parametrize(("width", "height"), [(40, 24), (80, 24), (120, 40)])
def test_everything_is_drawn_in_its_cell(width, height):
    board = cells(draw(BoardView(frame()), width, height))
    assert board[5, 0] == ("@", "")
    assert board[5, 5] == ("v2*", "")
    assert board[2, 2] == ("d3+1", "[?]")
    assert board[1, 4] == ("(c1)", "")
    assert board[4, 4] == ("t3", "")
    assert board[3, 1] == ("[8]", "!6")
    assert board[3, 3] == ("ANTIV", "taken")
    assert (board[0, 1][1], board[0, 2][1], board[0, 3][1], board[0, 0][1]) == ("$2", "e1", "S", "EXIT")


def test_hidden_program_is_not_revealed():
    assert "PUSH" not in draw(BoardView(frame()))


def test_hidden_cryptogs_are_not_shown_to_players():
    assert cells(draw(BoardView(frame(), reveal=False)))[1, 4] == ("", "")
    in_line = {**POSITION, "player": {**POSITION["player"], "row": 1}}
    assert cells(draw(BoardView(frame(position=in_line), reveal=False)))[1, 4] == ("c1", "")
    shown = {**POSITION, "showActivated": True}
    assert cells(draw(BoardView(frame(position=shown), reveal=False)))[1, 4] == ("c1", "")


def test_only_cryptogs_are_hidden():
    assert all(visible(enemy, POSITION) for enemy in POSITION["enemies"][:3])


def test_side_panel_shows_the_state_of_the_game():
    text = draw(BoardView(frame()))
    for part in ("stage 3/8", "turn 12", "calm", "♥♥·", "$7", "e9", "S3", "attack 4", "score 42", "push hack"):
        assert part in text
    for part in ("right  reward +0.29", "kills +0.30", "step_penalty -0.01", "value +2.50", "75%", "25%"):
        assert part in text
    assert "victory" not in text  # terms that are 0 are left out


def test_more_probable_actions_come_first_with_longer_bars():
    lines = draw(BoardView(frame())).splitlines()
    bars = [line.count("━", 51) for line in lines if "%" in line]
    names = [line[53:].split()[0] for line in lines if "%" in line]
    assert names == ["down", "siphon"] and bars[0] > bars[1] > 0


@pytest.mark.parametrize("outcome", ["won", "died", "stopped", "stuck"])
def test_end_of_the_game_is_reported(outcome):
    assert outcome.upper() in draw(BoardView(frame(outcome=outcome, legal=(), probs=None)))


def test_the_start_of_an_episode_has_no_reward():
    text = draw(BoardView(frame(action=None, reward=None, terms={})))
    assert "start of an episode" in text and "reward" not in text


@pytest.mark.parametrize(("width", "height"), [(40, 24), (76, 24), (80, 24), (120, 40)])
def test_board_fits_the_terminal(width, height):
    lines = draw(BoardView(frame(), title="a run   episode 1   step 4"), width, height).splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) < height
    assert not any("…" in line for line in lines)


def test_a_terminal_without_unicode_gets_plain_lines():
    class Ascii(io.StringIO):
        encoding = "ascii"

    console = Console(file=Ascii(), width=80, height=24)
    console.print(BoardView(frame()))
    drawn = console.file.getvalue()
    assert drawn.isascii() and "####" in drawn


def test_json_has_stable_keys():
    data = frame().to_json()
    assert list(data) == [
        "schema", "episode", "step", "action", "reward", "terms", "return", "outcome", "legal", "probabilities",
        "value", "position",
    ]  # fmt: skip
    assert data["action"] == "right" and data["legal"] == ["down", "siphon"]
    assert data["probabilities"] == {"down": 0.75, "siphon": 0.25} and data["outcome"] is None
    assert frame(action=None, probs=None, outcome="won").to_json()["probabilities"] is None
    assert len(ACTION_NAMES) == 28
