"""Counterfactual consequence: the distance between the returns of the action taken and those of its alternatives."""

from hmx.scoring.options import Candidates, ScoreOptions, candidates, env_steps
from hmx.scoring.rollouts import Continuation, make_continuation
from hmx.scoring.score import (
    Outcomes,
    Positions,
    Scores,
    compare,
    divergence,
    make_scorer,
    own_keys,
    play,
    q_gap,
    score,
)

__all__ = [
    "Candidates",
    "Continuation",
    "Outcomes",
    "Positions",
    "ScoreOptions",
    "Scores",
    "candidates",
    "compare",
    "divergence",
    "env_steps",
    "make_continuation",
    "make_scorer",
    "own_keys",
    "play",
    "q_gap",
    "score",
]
