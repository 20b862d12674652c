"""The findings of a review; `--json` prints them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hmx.records.plain import JsonValue
from hmx.stats.intervals import Interval

SCHEMA = 1


@dataclass(frozen=True)
class ReviewedAction:
    """An action, and what followed it in the rollouts."""

    action: str
    played: bool
    advised: bool  # the agent would have played it
    returns: float  # mean
    gain: float  # mean return minus that of the action played, with the same random numbers
    gain_interval: Interval  # of the level of the decision
    wins: float | None  # share of rollouts won; None if the environment counts no wins
    wins_interval: Interval | None  # 95 %


@dataclass(frozen=True)
class KeyDecision:
    """A decision of a game, the actions with the highest mean return first."""

    step: int
    played: str
    best: str  # the alternative with the highest mean return in earlier rollouts than those below
    advised: str  # by the agent
    gain: float  # of the best alternative
    gain_interval: Interval
    level: float  # of each interval of a gain, so that those of all best alternatives of a game hold together with 95 %
    blunder: bool  # the whole interval is above 0
    actions: tuple[ReviewedAction, ...]
    state: Mapping[str, JsonValue]


@dataclass(frozen=True)
class GameReview:
    """A game, and its decisions that mattered most, the largest gain first."""

    name: str
    steps: int
    outcome: str
    total: float  # return
    blunders: int
    decisions: tuple[KeyDecision, ...]

    @property
    def verdict(self) -> str:
        """Return the verdict in a sentence."""
        if not self.blunders:
            return "No blunder: no alternative was better beyond the noise of the rollouts."
        first = next(one for one in self.decisions if one.blunder)
        low, high = self.gain_range(first)
        return (
            f"Step {first.step} mattered most: {first.best} instead of {first.played} was worth "
            f"{first.gain:+.2f} in return ({low:+.2f} to {high:+.2f})."
        )

    @staticmethod
    def gain_range(decision: KeyDecision) -> tuple[float, float]:
        """Return the interval of the gain of a decision."""
        return decision.gain_interval.low, decision.gain_interval.high


@dataclass(frozen=True)
class ReviewFindings:
    """A review of games."""

    source: str
    env: str
    agent: str  # the run whose agent continues
    checkpoint: int
    redrawn: bool  # hidden parts of the positions were drawn again
    games: tuple[GameReview, ...]
    warnings: tuple[str, ...] = ()
    schema: int = SCHEMA
