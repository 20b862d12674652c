"""Counterfactual consequence: how far the returns of the action taken are from those of its alternatives."""

from hmx.scoring.candidates import Candidates, candidates
from hmx.scoring.continuation import Policy, make_policy
from hmx.scoring.divergences import divergence
from hmx.scoring.options import ACTIONS, AGGREGATES, CONTINUATIONS, METRICS, TEAM_REWARDS, Options, env_steps
from hmx.scoring.qgap import q_gap
from hmx.scoring.score import Outcomes, Positions, Scores, compare, make_scorer, play, score

__all__ = [
    "ACTIONS",
    "AGGREGATES",
    "CONTINUATIONS",
    "METRICS",
    "TEAM_REWARDS",
    "Candidates",
    "Outcomes",
    "Options",
    "Policy",
    "Positions",
    "Scores",
    "candidates",
    "compare",
    "divergence",
    "env_steps",
    "make_policy",
    "make_scorer",
    "play",
    "q_gap",
    "score",
]
