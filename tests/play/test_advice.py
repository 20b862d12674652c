"""The sentences of `hmx play --advise` on the two best actions."""

from __future__ import annotations

import numpy as np
import pytest

from hmx.play.advice import DEPTH, Continuations, sentences


def after(name: str, mean: float, lost: float = 0.25, won: float = 0.0) -> Continuations:
    return Continuations(name, mean + np.random.default_rng(len(name)).normal(size=64), lost, won)


@pytest.mark.parametrize(
    ("first", "second", "start"),
    [
        (5.0, 1.0, "Sure: up is better than down by "),
        (1.0, 5.0, "Doubtful: in rollouts, down is better than up by "),
        (1.0, 1.05, "Not sure: up or down, "),
    ],
)
def test_certainty_follows_the_interval_of_the_difference(first: float, second: float, start: str) -> None:
    assert sentences([after("up", first), after("down", second)]).startswith(start)


def test_losses_and_wins_of_both_continuations_are_named() -> None:
    text = sentences([after("up", 5.0, lost=0.125, won=0.5), after("down", 1.0, lost=0.75)])
    ends = f"Within {DEPTH} steps, 12% of games are lost after up and 75% after down; 50% and 0% are won."
    assert text.endswith(ends)
    assert "won" not in sentences([after("up", 5.0), after("down", 1.0)])
