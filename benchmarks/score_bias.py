"""Consequence scores on slippery FrozenLake against exact ones: bias, error, and how well they rank the positions.

All 53 states; the action taken is the best one without slipping; Wasserstein-1, the mean over the other three actions.
Exact scores follow from the distribution of the steps to the goal. Two policies play on: a nearly greedy one, and a
softmax of the same values at temperature 1, which hardly ever reaches the goal.

    python benchmarks/score_bias.py --seeds 5
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hmx.envs.small.frozenlake import LAKE, SIDE, make_frozenlake
from hmx.reports.score_buffer.measure import noise
from hmx.scoring import Positions, ScoreOptions, Scores, compare, make_continuation, play
from hmx.stats.ranks import spearman

GAMMA, HORIZON = 0.99, 100
LETTERS = np.array(list("".join(LAKE)))
CELLS = np.flatnonzero(np.isin(LETTERS, ["S", "F"]))


def moves(turns: tuple[int, ...]) -> Any:
    """Probabilities `[64, 4, 64]` of the next cell; an action turns by each of `turns` with equal probability."""
    found = np.zeros((SIDE * SIDE, 4, SIDE * SIDE))
    for cell in range(SIDE * SIDE):
        for action in range(4):
            for turn in turns:
                down, right = [(0, -1), (1, 0), (0, 1), (-1, 0)][(action + turn) % 4]
                row = min(max(cell // SIDE + down, 0), SIDE - 1)
                col = min(max(cell % SIDE + right, 0), SIDE - 1)
                found[cell, action, SIDE * row + col] += 1 / len(turns)
    return found


def optimal_values() -> Any:
    """Values `[64, 4]` of the lake without slipping, by value iteration."""
    step, is_live, goal = moves((0,)), np.isin(LETTERS, ["S", "F"]), LETTERS == "G"
    values = np.zeros((SIDE * SIDE, 4))
    for _ in range(200):
        values = step @ np.where(is_live, GAMMA * values.max(1), goal)
    return np.where(is_live[:, None], values, 0.0)


def exact_scores(probs: Any, taken: Any) -> Any:
    """Scores `[53]` from the distributions of returns."""
    step, is_live = moves((-1, 0, 1)), np.isin(LETTERS, ["S", "F"])
    after = np.where(is_live[:, None], np.einsum("sa,san->sn", probs, step), 0.0)
    arrived = [(LETTERS == "G").astype(float)]
    for _ in range(HORIZON - 1):
        arrived.append(after @ arrived[-1])
    by_step = np.stack([step @ now for now in arrived], -1)[CELLS]
    returns = np.append(GAMMA ** np.arange(HORIZON), 0.0)[::-1]
    cdf = np.concatenate([by_step, 1.0 - by_step.sum(-1, keepdims=True)], -1)[..., ::-1].cumsum(-1)
    distance = np.abs(cdf - np.take_along_axis(cdf, taken[:, None, None], 1))[..., :-1] @ np.diff(returns)
    return distance.sum(1) / 3


def scorer(logits: Any, taken: Any, options: ScoreOptions) -> Callable[[int], Scores]:
    """`score(seed)`, compiled."""
    env = make_frozenlake(HORIZON, slippery=True)
    policy = make_continuation(lambda params, obs: params[obs.argmax(-1)], "softmax", 1.0)
    state, _ = env.reset(jax.random.split(jax.random.key(0), len(CELLS)))
    cells = jnp.asarray(CELLS, jnp.int32)
    obs, legal = jax.nn.one_hot(cells, SIDE * SIDE)[:, None], jnp.ones((len(CELLS), 1, 4), bool)
    positions = Positions(
        state._replace(core=cells), obs, legal, jnp.asarray(taken, jnp.int32)[:, None], cells.astype(jnp.uint32)
    )
    program = jax.jit(lambda key: compare(play(env, policy, jnp.asarray(logits), positions, key, options), options))
    return lambda seed: jax.tree.map(np.asarray, program(jax.random.key(seed)))


def row(found: Any, exact: Any, options: ScoreOptions) -> list[float]:
    """The figures of one seed, from `Scores` on the host."""
    lower = found.score - found.bias
    noises = noise({"halves": found.halves.T, "bias": found.bias, "null": found.null}, options)
    return [
        float(found.score.mean()), float(lower.mean()), *(float(np.sqrt(np.square(x - exact).mean())) for x in
        (found.score, lower)), noises.standard_error or np.nan,
        *(spearman(x, exact) or np.nan for x in (found.score, lower)), noises.reliability or np.nan,
    ]  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rollouts", type=int, nargs="+", default=[4, 16, 64, 256])
    args = parser.parse_args()
    values = optimal_values()
    taken = values[CELLS].argmax(1)
    names = ("score", "corrected", "rmse", "corrected", "stated", "rank", "corrected", "reliability")
    print("policy         rollouts    exact ", " ".join(f"{name:>11}" for name in names))
    for policy, logits in (("nearly greedy", 20 * values), ("temperature 1", values)):
        probs = np.exp(logits - logits.max(1, keepdims=True))
        exact = exact_scores(probs / probs.sum(1, keepdims=True), taken)
        for number in args.rollouts:
            options = ScoreOptions(
                rollouts=number, horizon=HORIZON, bootstrap=False, gamma=GAMMA, team_reward="mean", null=True
            )
            score = scorer(logits, taken, options)
            means = np.nanmean([row(score(seed), exact, options) for seed in range(args.seeds)], 0)
            print(f"{policy:13} {number:9} {exact.mean():9.4f}  ", " ".join(f"{x:11.4f}" for x in means), flush=True)


if __name__ == "__main__":
    main()
