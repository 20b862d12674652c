"""`hmx play`: what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from hmx.errors import HmxError
from hmx.play.play import open_game
from hmx.play.request import PlayRequest


@pytest.mark.parametrize(
    ("given", "words"), [({"search": 4}, "cannot search"), ({"checkpoint": 3}, "cannot use a checkpoint")]
)
def test_play_needs_an_agent_to_search_or_to_load(given: dict[str, Any], words: str) -> None:
    with pytest.raises(HmxError, match=f"{words}: no agent given") as problem:
        open_game(PlayRequest(**given))
    option = next(iter(given))
    assert problem.value.hint.startswith(f"hmx play --advise RUN --{option} ")
