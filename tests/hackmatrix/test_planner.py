"""The planner of HackMatrix: what it knows, and what it does where one action is clearly best."""

from __future__ import annotations

import copy
import random
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled import load
from positions import random_scenario
from rows import RIGHT, UNDO, UP

from hmx.envs.hackmatrix.observation import packed
from hmx.envs.hackmatrix.planner.decide import _planned, _Tally, decide
from hmx.envs.hackmatrix.planner.hidden import redrawn
from hmx.envs.hackmatrix.planner.plan import EXIT, PLANES, direction_to, distances, make_plan
from hmx.envs.hackmatrix.planner.worth import PlannerWeights
from hmx.envs.hackmatrix.rules import NUM_ACTIONS, Rules, State, legal
from hmx.envs.hackmatrix.rules.scenario import to_dict
from hmx.envs.hackmatrix.rules.tables import P
from hmx.envs.protocol import Planned

pytestmark = pytest.mark.slow
DESIGNED = Rules(name="designed")
GAMES = 40
RESET = 5 + P.RESET
Scenario = dict[str, Any]


def unseen(scenario: Scenario, place: Mapping[str, Any]) -> bool:
    """Return whether a cryptog at a place is unseen."""
    player = scenario["player"]
    return not scenario.get("showActivated") and place["row"] != player["row"] and place["col"] != player["col"]


def place_of(item: Mapping[str, Any]) -> tuple[int, int]:
    """Return the cell of an item of a scenario."""
    return item["row"], item["col"]


def other_secrets(rng: random.Random, scenario: Scenario) -> Scenario:
    """Return a position that looks the same to the player, with other hidden things."""
    twin = copy.deepcopy(scenario)
    taken = {place_of(item) for name in ("enemies", "transmissions", "blocks") for item in scenario.get(name, [])}
    free = [{"row": r, "col": c} for r in range(6) for c in range(6) if (r, c) not in taken]
    free = [place for place in free if unseen(scenario, place)]
    rng.shuffle(free)
    for enemy in twin["enemies"]:
        enemy["isFromScheduledTask"] = not enemy.get("isFromScheduledTask", False)
        if enemy["type"] == "cryptog" and unseen(scenario, enemy) and free:
            enemy |= free.pop()
    for sent in twin["transmissions"]:
        sent["enemyType"] = {"virus": "daemon", "daemon": "glitch", "glitch": "cryptog", "cryptog": "virus"}[
            sent["enemyType"]
        ]
    for block in twin["blocks"]:
        if block["type"].startswith("question"):
            block |= {"type": "question-data", "points": rng.randint(1, 9), "spawnCount": rng.randint(1, 9)}
            block.pop("programType", None)
            block.pop("programActionIndex", None)
    return twin


def scenarios() -> tuple[list[Scenario], list[Scenario]]:
    """Return random positions without stacked entities, and twins of them with other secrets."""
    rng = random.Random(5)
    originals: list[Scenario] = []
    while len(originals) < GAMES:
        scenario = random_scenario(rng)
        places = [place_of(item) for name in ("enemies", "transmissions") for item in scenario.get(name, [])]
        if len(set(places)) == len(places):
            originals.append(scenario)
    return originals, [other_secrets(rng, scenario) for scenario in originals]


@pytest.fixture(scope="module")
def planner() -> Callable[..., Planned]:
    """The decision with few and short rollouts, compiled once for all tests."""
    return jax.jit(partial(decide, rules=DESIGNED._replace(undo_depth=0), rollouts=4, depth=3))


def plan(planner: Callable[..., Planned], state: State, mask: jax.Array | None = None, seed: int = 0) -> Planned:
    """Return the decision for `GAMES` games."""
    mask = legal(state, DESIGNED) if mask is None else mask
    return planner(state, mask.T[:, None], jax.random.key(seed), PlannerWeights())


def repeated(scenario: Scenario) -> State:
    """Return one position in every game."""
    return load([scenario] * GAMES, DESIGNED)


@pytest.mark.thorough
def test_decision_does_not_change_with_what_the_player_cannot_see(planner: Callable[..., Planned]) -> None:
    first, twins = (load(each, DESIGNED) for each in scenarios())
    later = twins.turn + jnp.arange(GAMES) % 5
    twins = twins._replace(turn=later, next_scheduled=later + 1 + jnp.arange(GAMES) % 7, history=twins.history + 3)
    moved = np.asarray((first.enemies != twins.enemies).any(axis=0))
    contents = np.asarray((first.cells.lo != twins.cells.lo).any(axis=0))
    assert moved.sum() > GAMES / 4 and contents.sum() > GAMES / 4, "the positions have too few secrets"
    np.testing.assert_array_equal(packed(first), packed(twins))
    mask = legal(first, DESIGNED)
    one, two = plan(planner, first, mask), plan(planner, twins, mask)
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a, b)
    weaker = plan(planner, first._replace(hp=first.hp % 3 + 1), mask)
    assert (np.asarray(weaker.values) != np.asarray(one.values)).any(axis=(1, 2)).mean() > 0.7


def test_redrawn_games_look_the_same_and_differ_in_what_is_hidden() -> None:
    state = load(scenarios()[0], DESIGNED)
    drawn = [jax.jit(redrawn)(state, jax.random.bits(jax.random.key(seed), (2, GAMES))) for seed in range(3)]
    for one in drawn:
        np.testing.assert_array_equal(packed(one), packed(state))
    for name in ("enemies", "transmissions", "cells", "next_scheduled"):
        leaves = [np.concatenate([np.ravel(x) for x in jax.tree.leaves(getattr(one, name))]) for one in drawn]
        assert (leaves[0] != leaves[1]).any() and (leaves[1] != leaves[2]).any(), name


def test_redrawn_secrets_follow_the_rules_of_generation() -> None:
    questions = [{"row": 2, "col": c, "type": "question-data", "points": 1, "spawnCount": 1} for c in range(6)]
    hidden = [{"row": r, "col": 5, "type": "cryptog", "hp": 2} for r in (4, 5)]
    sent = [{"row": 3, "col": c, "enemyType": "virus", "turnsRemaining": 1} for c in range(6)]
    scenario = {"player": {"row": 0, "col": 0}, "blocks": questions, "enemies": hidden, "transmissions": sent}
    state = jax.jit(redrawn)(repeated(scenario), jax.random.bits(jax.random.key(1), (2, GAMES)))
    boards = [to_dict(jax.tree.map(lambda leaf, g=g: np.asarray(leaf)[..., g], state)) for g in range(GAMES)]
    blocks = [block for board in boards for block in board["blocks"]]
    data = [block for block in blocks if block["type"] == "question-data"]
    assert 0.3 < len(data) / len(blocks) < 0.7
    assert {block["points"] for block in data} == set(range(1, 10))
    assert all(block["spawnCount"] == block["points"] for block in data)
    assert {t["enemyType"] for board in boards for t in board["transmissions"]} == {
        "virus", "daemon", "glitch", "cryptog"
    }  # fmt: skip
    walls = {(2, c) for c in range(6)} | {(3, c) for c in range(6)}
    for board in boards:
        places = [place_of(enemy) for enemy in board["enemies"]]
        assert len(set(places)) == 2 and not walls.intersection(places)
        assert all(unseen(scenario, enemy) for enemy in board["enemies"])


@pytest.mark.thorough
def test_planner_takes_the_action_that_is_clearly_best(planner: Callable[..., Planned]) -> None:
    exit_cell = {"row": 5, "col": 5}
    won = {"player": {"row": 5, "col": 4}, "exit": exit_cell, "stage": 8}
    assert (plan(planner, repeated(won)).action == RIGHT).all(), "the last exit is one step away"
    beside = [{"type": "virus", "row": 1, "col": 0, "hp": 1}]
    attacked = {"player": {"row": 0, "col": 0, "hp": 1}, "exit": exit_cell, "enemies": beside}
    assert (plan(planner, repeated(attacked)).action == UP).all(), "an enemy with one hit point would kill"
    two = [{"type": "daemon", "row": 1, "col": 0, "hp": 3}, {"type": "daemon", "row": 0, "col": 1, "hp": 3}]
    healed = {"player": {"row": 0, "col": 0, "hp": 1, "energy": 12}, "exit": exit_cell, "enemies": two}
    assert (plan(planner, repeated(healed | {"ownedPrograms": [RESET]})).action == RESET).all()


@pytest.mark.thorough
def test_undo_is_left_out_and_other_values_are_minus_infinity(planner: Callable[..., Planned]) -> None:
    owner = {"player": {"row": 2, "col": 2, "credits": 9, "hp": 2}, "ownedPrograms": [UNDO]}
    state = repeated(owner)._replace(history_count=jnp.ones(GAMES, jnp.int32))
    decision, mask = plan(planner, state), np.array(legal(state, DESIGNED)).T
    assert mask[:, UNDO].all() and decision.values.shape == (GAMES, 1, NUM_ACTIONS)
    mask[:, UNDO] = False
    np.testing.assert_array_equal(np.isfinite(decision.values[:, 0]), mask)
    assert (np.asarray(decision.errors)[:, 0][mask] > 0).any()


def test_way_to_the_exit_is_a_shortest_path() -> None:
    state = load([s | {"exit": {"row": 5, "col": 5}} for s in scenarios()[0]], DESIGNED)
    made = jax.jit(make_plan)(state, PlannerWeights())
    assert made.way.lo.shape == (PLANES, 4, GAMES)
    length = np.asarray(distances(made, state.pos))[EXIT]
    direction, way = (np.asarray(x) for x in direction_to(made, jnp.full(GAMES, EXIT), state.pos))
    positions = [to_dict(jax.tree.map(lambda leaf, g=g: np.asarray(leaf)[..., g], state)) for g in range(GAMES)]
    assert way.sum() > GAMES / 4
    for g, position in enumerate(positions):
        walls = {place_of(block) for block in position["blocks"]}
        steps = _steps_to((5, 5), walls)
        start = place_of(position["player"])
        assert way[g] == (steps.get(start, 0) > 0)
        if way[g]:
            row, col = ((1, 0), (-1, 0), (0, -1), (0, 1))[direction[g]]
            assert length[g] == steps[start] == steps[start[0] + row, start[1] + col] + 1


def _steps_to(goal: tuple[int, int], walls: set[tuple[int, int]]) -> dict[tuple[int, int], int]:
    """Return the steps to a goal from every cell that has a way, by a search in plain Python."""
    steps, queue = {goal: 0}, deque([goal])
    while queue:
        row, col = queue.popleft()
        for near in ((row + 1, col), (row - 1, col), (row, col - 1), (row, col + 1)):
            if near not in steps and near not in walls and 0 <= near[0] < 6 and 0 <= near[1] < 6:
                steps[near] = steps[row, col] + 1
                queue.append(near)
    return steps


def test_standard_errors_are_those_of_the_unbiased_variance() -> None:
    """Rollouts worth 1, 2, 3 and 6: s^2 = 14 / 3, and s / sqrt(4) = 1.0801 (over n, it would be 0.9354)."""
    worth = np.array([1.0, 2.0, 3.0, 6.0])
    number = jnp.zeros(NUM_ACTIONS).at[0].set(len(worth))
    tally = _Tally(number * worth.mean(), number * np.square(worth).mean(), number)
    candidates = jnp.zeros((1, NUM_ACTIONS), bool).at[0, :2].set(True)
    errors = np.asarray(_planned(tally, candidates).errors)[0, 0]
    assert errors[0] == pytest.approx(np.std(worth, ddof=1) / 2, rel=1e-5)
    assert not errors[1:].any(), "without a rollout, and of other actions"
