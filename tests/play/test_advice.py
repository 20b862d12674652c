"""The sentences of `hmx play --advise` on the two best actions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from hmx.envs.small.corridor import make_corridor
from hmx.play import advice
from hmx.play.advice import DEPTH, ROLLOUTS, Continuations, make_advisor, sentences
from hmx.reports.review.judge import Judge, options_of
from hmx.reports.review.request import ReviewRequest
from hmx.scoring import Continuation
from hmx.scoring.rollouts import Returns


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
    assert sentences([after("up", first), after("down", second)], 10.0).startswith(start)


def test_an_alternative_that_may_win_in_other_rollouts_leaves_doubt() -> None:
    # A win worth 100 in 1 % of games is missed by half of all samples of 64; their mean is then too low by 1.
    safe, risky = after("up", 1.0), after("down", 0.0)
    assert sentences([safe, risky], 5.0).startswith("Sure")
    assert sentences([safe, risky], 100.0).startswith("Not sure")


def test_losses_and_wins_of_both_continuations_are_named() -> None:
    text = sentences([after("up", 5.0, lost=0.125, won=0.5), after("down", 1.0, lost=0.75)], 10.0)
    ends = f"Within {DEPTH} steps, 12% of games are lost after up and 75% after down; 50% and 0% are won."
    assert text.endswith(ends)
    assert "won" not in sentences([after("up", 5.0), after("down", 1.0)], 10.0)


def test_advice_remembers_a_rare_win_that_other_positions_have_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn(env: Any, policy: Any, params: Any, states: Any, action: Any, *rest: Any) -> Returns:
        """Return 1 after the first action; after the second 0, but 100 in one of 64 rollouts of states with a win."""
        number = jnp.arange(2 * ROLLOUTS)
        total = jnp.where(number < ROLLOUTS, 1.0, jnp.where(number == ROLLOUTS, 100.0 * states, 0.0))
        return Returns(total, jnp.ones_like(total, bool), jnp.ones_like(number))

    monkeypatch.setattr(advice, "rollouts", drawn)
    env = make_corridor(40, 0.0)
    options = options_of(ReviewRequest(), env, False, 1.0)
    judge = Judge(env, Continuation(lambda *_: jnp.zeros(1)), lambda *_: jnp.zeros(1), None, options)
    advise = make_advisor(judge)

    def position(wins: float) -> Any:
        frame = SimpleNamespace(probs=[0.6, 0.4], outcome="", legal=[0, 1], names=["up", "down"], episode=0, step=0)
        return SimpleNamespace(frame=frame, seed=0, seen=lambda: (jnp.array([wins]), None))

    assert advise(position(0.0)).startswith("Sure")
    assert advise(position(1.0)).startswith("Not sure")
    assert advise(position(0.0)).startswith("Not sure")
