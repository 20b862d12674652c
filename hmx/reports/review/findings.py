"""The findings of a review; `--json` prints them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hmx.records.plain import JsonValue
from hmx.render.numbers import num
from hmx.render.quantities import number
from hmx.stats.intervals import Interval

SCHEMA = 1


def range_text(interval: Interval) -> str:
    """Return the interval of a gain as text."""
    return f"{interval.low:+.2f} to {interval.high:+.2f}"


def _percent_range(interval: Interval | None) -> str:
    return "" if interval is None else f"{100 * interval.low:.0f} to {100 * interval.high:.0f}"


@dataclass(frozen=True, kw_only=True)
class ReviewedAction:
    """An action, and what followed it in the rollouts."""

    action: str
    played: bool
    advised: bool  # the agent would have played it
    returns: float = num("mean return", column="return", show=number)
    gain: float = num("mean return minus that of the action played, with the same random numbers", column="gain",
                      cell=lambda one: "" if one.played else f"{one.gain:+.2f}")  # fmt: skip
    gain_interval: Interval  # of the level of the decision
    wins: float | None = num("share of rollouts won; None if the environment counts no wins", column="wins",
                             show=lambda share: "" if share is None else f"{100 * share:.0f} %")  # fmt: skip
    wins_interval: Interval | None = num("95 %", column="95 %", show=_percent_range)


@dataclass(frozen=True, kw_only=True)
class KeyDecision:
    """A decision of a game, the actions with the highest mean return first."""

    step: int
    played: str
    best: str  # the alternative with the highest mean return in earlier rollouts than those below
    advised: str  # by the agent
    gain: float = num("gain of the best alternative", column="gain", show="{:+.2f}".format)
    gain_interval: Interval
    level: float  # of each interval of a gain, so that those of all best alternatives of a game hold together with 95 %
    blunder: bool  # the whole interval is above 0
    actions: tuple[ReviewedAction, ...]
    state: Mapping[str, JsonValue]

    def action(self, name: str) -> ReviewedAction:
        """Return an action by its name."""
        return next(one for one in self.actions if one.action == name)

    @property
    def level_text(self) -> str:
        """The level of the intervals of gains."""
        return f"{100 * self.level:.1f} %"


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
        return (
            f"Step {first.step} mattered most: {first.best} instead of {first.played} was worth "
            f"{first.gain:+.2f} in return ({range_text(first.gain_interval)})."
        )


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
