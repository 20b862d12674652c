"""The review of games: on positions with exact values, and what it says of a game without a blunder."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lake_values import GAMMA, transitions
from review_errors import Draw, measure, normal, rare

from hmx.config.schema import EnvConfig
from hmx.envs.small.corridor import make_corridor
from hmx.envs.small.frozenlake import LAKE, SIDE, make_frozenlake
from hmx.render.blocks import Aside, Paragraph, Table
from hmx.reports.review.document import document, table
from hmx.reports.review.findings import GameReview, KeyDecision, ReviewedAction, ReviewFindings
from hmx.reports.review.job import _open, play_games
from hmx.reports.review.judge import Judge, compile_program, judge_game, options_of
from hmx.reports.review.request import ReviewRequest
from hmx.scoring import make_continuation
from hmx.stats.intervals import Interval

GAMES, LIMIT = 24, 48
CLEAR = 0.1  # loss of value by the worst action where one is planted
REQUEST = ReviewRequest(screened=64, confirmed=256, depth=LIMIT, decisions=2)


@cache
def values() -> np.ndarray:
    """Return the exact action values `[64, 4]` of optimal play on slippery ice without a step limit."""
    letters, step = np.array(list("".join(LAKE))), transitions()
    live, goal = np.isin(letters, ["S", "F"]), (letters == "G").astype(float)
    best = np.zeros(SIDE * SIDE)
    for _ in range(600):
        best = np.where(live, (step @ (goal + float(GAMMA) * best)).max(1), 0.0)
    return step @ (goal + float(GAMMA) * best)


def by_table(table: Any, obs: Any) -> Any:
    """Return the action values of the cells in one-hot observations."""
    return table[obs.argmax(-1)]


def lake_judge() -> Judge:
    """Return optimal play as the agent that continues."""
    env = make_frozenlake(LIMIT, slippery=True)
    policy = make_continuation(by_table, "greedy", 1.0)
    return Judge(
        env, policy, by_table, jnp.asarray(values(), jnp.float32), options_of(REQUEST, env, False, float(GAMMA))
    )


def exact_values(horizon: int) -> np.ndarray:
    """Return the exact values `[horizon + 1, 64, 4]` of optimal play with 0 to `horizon` steps left."""
    letters, step = np.array(list("".join(LAKE))), transitions()
    live, goal = np.isin(letters, ["S", "F"]), (letters == "G").astype(float)
    chosen = values().argmax(1)
    found = [np.zeros((SIDE * SIDE, 4))]
    for _ in range(horizon):
        after = np.where(live, found[-1][np.arange(SIDE * SIDE), chosen], 0.0)
        found.append(step @ (goal + float(GAMMA) * after))
    return np.stack(found)


@pytest.mark.long_run
def test_true_blunder_is_ranked_first_on_slippery_ice() -> None:
    judge, exact = lake_judge(), exact_values(LIMIT)
    program, rng = compile_program(judge), np.random.default_rng(3)
    first, blunders, judged = 0, 0, 0
    for number, game in enumerate(play_games(judge, GAMES, seed=1)):
        positions = game.positions._replace(taken=game.positions.taken.copy())
        cells = positions.obs[:, 0].argmax(-1)
        table = exact[LIMIT - np.arange(len(cells)), cells]
        loss = table.max(1) - table.min(1)
        if loss.max() < CLEAR:
            continue
        step = rng.choice(np.flatnonzero(loss >= CLEAR))
        positions.taken[step, 0] = table[step].argmin()
        decision = judge_game(judge, program, positions, REQUEST, number)[0]
        judged += 1
        first += decision.step == step
        blunders += decision.blunder
        low, high = decision.gain_interval
        assert low - 0.05 < loss[decision.step] < high + 0.05
    assert judged >= GAMES / 2, "the games have too few positions in which an action matters"
    assert first >= 0.95 * judged and blunders >= 0.7 * judged


def test_blunder_in_the_corridor_is_found_and_right_moves_are_not_blunders() -> None:
    env = make_corridor(40, 0.0)
    toward = make_continuation(lambda params, obs: jnp.broadcast_to(params, (*obs.shape[:-1], 2)), "greedy", 1.0)
    outputs = lambda params, obs: jnp.broadcast_to(params, (*obs.shape[:-1], 2))  # noqa: E731
    request = ReviewRequest(screened=4, confirmed=8, depth=40)
    judge = Judge(env, toward, outputs, jnp.array([0.0, 1.0]), options_of(request, env, False, 1.0))
    (perfect,) = play_games(judge, 1, seed=0)
    program = compile_program(judge)
    decisions = judge_game(judge, program, perfect.positions, request)
    assert decisions and not any(decision.blunder for decision in decisions)
    positions = perfect.positions._replace(taken=perfect.positions.taken.copy())
    positions.taken[1] = 0
    decisions = judge_game(judge, program, positions, request)
    assert (decisions[0].step, decisions[0].blunder, decisions[0].best) == (1, True, env.spec.action_names[1])
    assert decisions[0].advised == env.spec.action_names[1]
    assert "@" in decisions[0].state["text"]  # as `render` of the environment shows the position
    (_, _, summary, first, *_) = document(review(*decisions)).blocks
    assert isinstance(summary, Table) and [column.name for column in summary.columns][4] == "gain"
    assert isinstance(first, Aside) and table(review(*decisions)).rows[0].cells[1].text == "1"


@pytest.mark.parametrize("draw", [normal, rare(0.01)], ids=["normal", "wins of 1 %"])
def test_fewer_than_5_percent_of_games_without_a_blunder_have_one(draw: Draw) -> None:
    found = measure(draw, 0.0, 20)
    assert found.false < 0.05 and found.outside < 0.05
    if draw is normal:
        assert abs(found.bias) < 0.04  # the standard error is sqrt(2 / 192 rollouts / 60 decisions) = 0.013


@pytest.mark.parametrize(("draw", "gain"), [(normal, 1.5), (rare(0.01), 8.0)])
def test_large_gain_is_found(draw: Draw, gain: float) -> None:
    assert measure(draw, gain, 10).found >= 0.9


def test_all_rollouts_of_a_decision_try_the_same_alternatives() -> None:
    judge = lake_judge()
    judge = judge._replace(
        options=dataclasses.replace(judge.options, actions="sampled", num_actions=1, rollouts=2, horizon=2)
    )
    request = ReviewRequest(screened=2, confirmed=32, depth=2)
    (game,) = play_games(judge, 1, seed=1)
    decisions = judge_game(judge, compile_program(judge), game.positions, request)
    assert [len(decision.actions) for decision in decisions] == [2, 2, 2]


def review(*decisions: KeyDecision) -> ReviewFindings:
    """Return a review of one game."""
    game = GameReview("game 1", 9, "ended", -1.0, sum(one.blunder for one in decisions), decisions)
    return ReviewFindings("run", "corridor", "run", 3, False, (game,))


def test_game_without_a_blunder_gets_that_verdict() -> None:
    assert "No blunder" in review().games[0].verdict
    assert document(review()).blocks


def action(name: str, returns: float) -> ReviewedAction:
    gain = {"returns": returns, "gain": returns, "gain_interval": Interval(-1.0, 1.0)}
    return ReviewedAction(action=name, played=name == "left", advised=False, wins=None, wins_interval=None, **gain)


@pytest.mark.parametrize(("up", "named"), [(0.4, True), (0.3, False), (0.2, False)])
def test_a_higher_mean_than_that_of_the_alternative_named_is_explained(up: float, named: bool) -> None:
    actions = (action("up", up), action("right", 0.3), action("left", 0.0))
    decision = KeyDecision(
        step=1, played="left", best="right", advised="right", gain=0.3, gain_interval=Interval(-1.0, 1.0), level=0.95,
        blunder=False, actions=actions, state={"text": ""},
    )  # fmt: skip
    (aside,) = (block for block in document(review(decision)).blocks if isinstance(block, Aside))
    text = next(block.text for block in aside.blocks if isinstance(block, Paragraph))
    assert text.startswith("right gains +0.30 (-1.00 to +1.00) in return. The agent would play right.")
    why = "earlier rollouts chose right, so that no choice biases the gain."
    assert text.endswith(f"up has a higher mean in the rollouts below: {why}") == named


def test_a_game_with_another_depth_of_undo_is_judged_by_the_agent_in_its_own_environment() -> None:
    judge, run, _ = _open("champion", ReviewRequest(), EnvConfig(rules="designed", undo_depth=9))
    assert run.cfg.env.undo_depth == 9
    state, _ = jax.eval_shape(judge.env.reset, jax.random.split(jax.random.key(0), 2))
    assert any(9 in leaf.shape for leaf in jax.tree.leaves(state))
