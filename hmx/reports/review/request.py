"""The request of `hmx review`: every option with its default; the command line is generated from it."""

from __future__ import annotations

from dataclasses import dataclass

from hmx.config.option import MAX_SEED, OUTPUT_PANEL, opt

_GAMES, _ROLLOUTS = "Games", "Rollouts"


@dataclass(frozen=True, kw_only=True)
class ReviewRequest:
    """The games to review, and how carefully."""

    episodes: int = opt(3, "games of a run's agent to play and review", ge=1, le=1000, short="-n", panel=_GAMES)
    agent: str = opt(
        "", "run whose agent continues from the positions (default: the champion for a saved game, or else the run)",
        metavar="RUN", panel=_GAMES,
    )  # fmt: skip
    screened: int = opt(16, "rollouts of every action of every decision, to find candidates", ge=2, le=10_000,
                        panel=_ROLLOUTS)  # fmt: skip
    confirmed: int = opt(192, "fresh rollouts of every action of the decisions shown, and a sixth of it for candidates",
                         ge=2, le=100_000, panel=_ROLLOUTS)  # fmt: skip
    depth: int = opt(64, "steps of a rollout, at most; the agent's value counts for the rest", ge=1, le=1_000_000,
                     panel=_ROLLOUTS)  # fmt: skip
    seed: int = opt(0, "seed of the games and of the rollouts", ge=0, le=MAX_SEED, panel=_ROLLOUTS)
    decisions: int = opt(3, "decisions to show per game, at most", ge=1, le=50, panel=OUTPUT_PANEL)
