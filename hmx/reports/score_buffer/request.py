"""The request of `hmx score-buffer`: every option with its default; the command line is generated from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hmx.config import learning
from hmx.config.option import MAX_SEED, OUTPUT_PANEL, opt, same

MAX_HORIZON = 1_000_000

POSITIONS, _SCORES, _REPLAY = "Positions", "Scores", "Replay"


@dataclass(frozen=True, kw_only=True)
class ScoreRequest:
    """The positions to score, the method, and the report."""

    agent: int = opt(0, "index of the agent (seed) to use", ge=0, panel=POSITIONS)
    collect: int = opt(
        4096, "positions to collect by playing, if the run has no buffer", "positions", ge=1, le=10_000_000,
        panel=POSITIONS,
    )  # fmt: skip
    select: Literal["uniform", "stale", "all"] = opt(
        "uniform", "positions to score: random ones, unscored and then oldest scores first, or all", panel=POSITIONS
    )
    positions: int = opt(256, "number of positions to score, unless all", ge=1, le=2**31 - 1, panel=POSITIONS)
    indices: str = opt("", "file with the slots to score, one per line, in place of --select", metavar="FILE",
                       panel=POSITIONS)  # fmt: skip
    actions: learning.ScoredActions | None = opt(
        None, "alternatives to the action taken: all, those of a single agent, random or likely ones; all by default, "
        "single for several agents", panel=_SCORES,
    )  # fmt: skip
    num_actions: int = same(learning.ScoreConfig, "num_actions", _SCORES)
    rollouts: int = opt(
        4 * learning.ScoreConfig.rollouts, "rollouts per action; four times those of training", ge=1, le=100_000,
        panel=_SCORES,
    )  # fmt: skip
    horizon: int | None = opt(
        None, "steps per rollout; auto (the default) for what 99% of a sample of rollouts need to end",
        ge=1, le=MAX_HORIZON, metavar="STEPS", words={"auto": None}, panel=_SCORES,
    )  # fmt: skip
    gamma: float | None = opt(None, "discount per step; that of the run by default", ge=0, le=1, panel=_SCORES)
    policy: learning.ContinuationKind | None = opt(
        None, "policy after the compared action; softmax for PPO and greedy for Q-learning by default", panel=_SCORES
    )
    temperature: float = opt(1.0, "temperature of a softmax policy", gt=0, le=1e6, panel=_SCORES)
    epsilon: float = opt(0.1, "probability of a random action of an epsilon policy", ge=0, le=1, panel=_SCORES)
    bootstrap: bool = same(learning.ScoreConfig, "bootstrap", _SCORES)
    crn: bool = same(learning.ScoreConfig, "crn", _SCORES)
    metric: learning.Metric = same(learning.ScoreConfig, "metric", _SCORES)
    aggregate: learning.Aggregate = same(learning.ScoreConfig, "aggregate", _SCORES)
    correct: bool = opt(False, "subtract what the noise of the rollouts adds to scores", panel=_SCORES)
    seed: int | None = opt(None, "seed of the rollouts; that of the run by default", ge=0, le=MAX_SEED, panel=_SCORES)
    mixing: Literal["td", "additive"] = opt(
        "additive", "how replay would sample: by TD error, or by the sum of TD error and score", panel=_REPLAY
    )
    mu: float = same(learning.ReplayConfig, "mu", _REPLAY)
    alpha_td: float = same(learning.ReplayConfig, "alpha_td", _REPLAY)
    alpha_c: float = same(learning.ReplayConfig, "alpha_c", _REPLAY)
    eps_td: float = same(learning.ReplayConfig, "eps_td", _REPLAY)
    target_ess: float = same(learning.ReplayConfig, "target_ess", _REPLAY)
    unscored: Literal["mean", "zero"] = opt(
        "mean", "score assumed for unscored transitions: the mean score, or zero", panel=_REPLAY
    )
    target_coverage: float = opt(
        0.0, "share of transitions that must have a score, for --strict", ge=0, le=1, panel=_REPLAY
    )
    top: int = opt(8, "number of most consequential positions to report", ge=0, le=100, panel=OUTPUT_PANEL)
    write_back: bool = opt(False, "also write the buffer with its new scores, to the same folder", panel=OUTPUT_PANEL)
    force: bool = opt(False, "score even if the horizon is too short, and replace existing results", panel=OUTPUT_PANEL)
