"""Exact values and consequence scores on FrozenLake."""

from __future__ import annotations

from functools import cache

import numpy as np

from hmx.envs.small.frozenlake import LAKE, SIDE

GAMMA = np.float32(0.99)
CELLS = np.array([i for i, letter in enumerate("".join(LAKE)) if letter in "SF"], np.int32)


@cache
def optimal_values() -> np.ndarray:
    """Value iteration in float32, so that sums of one reward times powers of gamma agree to the bit: `[64, 4]`."""
    letters, values = "".join(LAKE), np.zeros((SIDE * SIDE, 4), np.float32)
    for _ in range(200):
        best = values.max(1)
        for cell in CELLS:
            for action, (down, right) in enumerate([(0, -1), (1, 0), (0, 1), (-1, 0)]):
                row = min(max(cell // SIDE + down, 0), SIDE - 1)
                col = min(max(cell % SIDE + right, 0), SIDE - 1)
                there = SIDE * row + col
                values[cell, action] = {"G": np.float32(1), "H": np.float32(0)}.get(letters[there], GAMMA * best[there])
    return values


@cache
def transitions() -> np.ndarray:
    """Probabilities `[64, 4, 64]` of the next cell where the ice is slippery."""
    found = np.zeros((SIDE * SIDE, 4, SIDE * SIDE))
    for cell in range(SIDE * SIDE):
        for action in range(4):
            for turn in (-1, 0, 1):
                down, right = [(0, -1), (1, 0), (0, 1), (-1, 0)][(action + turn) % 4]
                row = min(max(cell // SIDE + down, 0), SIDE - 1)
                col = min(max(cell % SIDE + right, 0), SIDE - 1)
                found[cell, action, SIDE * row + col] += 1 / 3
    return found


def slippery_scores(policy: np.ndarray, taken: np.ndarray, horizon: int) -> np.ndarray:
    """Exact Wasserstein-1 consequence `[53]` on slippery ice, the mean over the other three actions.

    Args:
        policy: probabilities of the continuation, `[64, 4]`.
        taken: the actions taken, `[53]`.
        horizon: steps after which an episode ends.
    """
    letters, step = np.array(list("".join(LAKE))), transitions()
    is_live, goal = np.isin(letters, ["S", "F"]), letters == "G"
    after = np.where(is_live[:, None], np.einsum("sa,san->sn", policy, step), 0.0)
    arrived = [goal.astype(float)]  # probability of standing on the goal after so many steps for the first time
    for _ in range(horizon - 1):
        arrived.append(after @ arrived[-1])
    by_step = np.stack([step @ now for now in arrived], -1)[CELLS]  # [53, 4, horizon]
    returns = np.append(float(GAMMA) ** np.arange(horizon), 0.0)[::-1]
    mass = np.concatenate([by_step, 1.0 - by_step.sum(-1, keepdims=True)], -1)[..., ::-1]
    cdf = mass.cumsum(-1)
    distance = np.abs(cdf - np.take_along_axis(cdf, taken[:, None, None], 1))[..., :-1] @ np.diff(returns)
    return distance.sum(1) / 3
