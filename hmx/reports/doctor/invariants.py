"""The rules about metrics that must agree in every update, whatever the agent has learned."""

from __future__ import annotations

import math

from hmx.registry.environments import find_environment
from hmx.render.quantities import number
from hmx.reports.doctor.history import History
from hmx.reports.doctor.rule import Rule

_ROUNDING = 1e-3
"""Relative error that sums of float32 may have: adding -0.01 for 65,536 steps one by one is wrong by 5e-4."""


def _reward_sum(run: History) -> str:
    terms = [run.latest.get(f"reward/{name}") for name in run.groups["reward"]]
    known, reward = [term for term in terms if term is not None], run.latest.get("train/mean_reward")
    if reward is None or len(known) < len(terms):
        return ""  # a value was not finite, so it was not recorded
    total = math.fsum(known)
    # Terms of both signs cancel in the mean, and their rounding does not: their largest means so far show their size.
    size = math.fsum(max(abs(term.low), abs(term.high)) for term in run.groups["reward"].values())
    if abs(total - reward) <= _ROUNDING * size + 1e-6:
        return ""
    return f"the {len(known)} terms sum to {number(total, 6)} per step, and the mean reward is {number(reward, 6)}"


def _action_shares(run: History) -> str:
    shares = [run.latest.get(f"actions/{name}") for name in run.groups["actions"]]
    total = math.fsum(share for share in shares if share is not None)
    return f"the {len(shares)} shares sum to {number(total, 6)}" * (None not in shares and abs(total - 1) > _ROUNDING)


def _step_reward(run: History) -> str:
    env = run.cfg.env
    entry = find_environment(env.id)
    if entry is None or env.action_repeat > 1:  # a repeated action ends with its episode, after fewer steps
        return ""
    for name in entry.steady_terms:
        term = run[f"reward/{name}"]
        weight = getattr(run.cfg.reward, name, None) if run.current else None
        paid = (term.low, term.high) if weight is None else (term.low, term.high, weight)
        if term.count and max(paid) - min(paid) > _ROUNDING * max(map(abs, paid)):
            configured = "" if weight is None else f", and every step pays {number(weight)}"
            return f"{name} was between {number(term.low, 6)} and {number(term.high, 6)} per step{configured}"
    return ""


INVARIANTS = (
    Rule(
        "reward-sum", ("reward/", "train/mean_reward"), _reward_sum,
        "The reward terms do not sum to the reward",
        ("check that the environment returns every part of its reward as a term, and no part twice",),
        patience=0.0, updates=2, configured=True,
    ),
    Rule(
        "action-shares", ("actions/",), _action_shares,
        "The shares of the kinds of actions do not sum to 1",
        ("check that the environment's action groups contain each action once: hmx check-env ENV",),
        patience=0.0, updates=2, configured=True,
    ),
    Rule(
        "step-reward", ("reward/",), _step_reward,
        "A reward that every step pays is not constant",
        ("check the code of that reward term: some steps pay another amount, or none",),
        patience=0.0, updates=2, configured=True,
    ),
)  # fmt: skip
"""In the order of the report."""
