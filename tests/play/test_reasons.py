"""The reason why an action is not possible agrees with the mask of the game."""

from __future__ import annotations

from typing import Any

import pytest

from hmx.envs.hackmatrix.rules.tables import ACTION_NAMES, DIRECTIONS, FIRST_PROGRAM, NUM_ACTIONS, PROGRAMS, SIPHON
from hmx.play.play import HELP
from hmx.play.reasons import why_not
from hmx.play.screen import PROGRAM_KEYS

CORNER: dict[str, Any] = {
    "player": {"row": 0, "col": 0, "credits": 1, "energy": 0, "dataSiphons": 0},
    "blocks": [{"row": 1, "col": 0, "type": "data", "points": 3}],
    "ownedPrograms": [FIRST_PROGRAM + 2, FIRST_PROGRAM + 9],
}


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        (DIRECTIONS.index("up"), "up is not possible: a block is in the way"),
        (DIRECTIONS.index("down"), "down is not possible: the board ends there"),
        (DIRECTIONS.index("left"), "left is not possible: the board ends there"),
        (SIPHON, "siphon is not possible: you have no data siphon; walk over S to pick one up"),
        (FIRST_PROGRAM, "PUSH is not possible: you do not own it; siphon beside its block"),
        (FIRST_PROGRAM + 2, "CRASH is not possible: it costs $3 e2, and you have $1 e0"),
        (FIRST_PROGRAM + 9, "UNDO is not possible: there is no enemy turn to take back"),
    ],
)
def test_reason_names_what_is_in_the_way_or_missing(action: int, reason: str) -> None:
    assert why_not(action, CORNER) == reason  # type: ignore[arg-type]


def test_every_program_with_a_condition_has_a_reason() -> None:
    rich = {"player": {"row": 2, "col": 2, "credits": 99, "energy": 99}, "ownedPrograms": range(NUM_ACTIONS)}
    unconditional = {"wait", "step", "siph+", "exch"}
    for number, program in enumerate(PROGRAMS):
        reason = why_not(FIRST_PROGRAM + number, rich)  # type: ignore[arg-type]
        assert ("it would have no effect" in reason) == (program.name in unconditional), ACTION_NAMES[number]


def test_footer_names_every_key_of_a_program() -> None:
    rows = {"1-0": "1234567890", "e-p": "ertyuiop", "f-k": "fghjk"}
    assert "".join(rows.values()) == PROGRAM_KEYS
    assert f"{' '.join(rows)} programs" in HELP
