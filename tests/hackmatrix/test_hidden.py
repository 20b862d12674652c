"""What the player of HackMatrix cannot see, drawn again for each continuation of a game."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import pytest
from compiled import load
from positions import random_scenario

from hmx.envs.hackmatrix.hidden import redrawn
from hmx.envs.hackmatrix.observation import packed
from hmx.envs.hackmatrix.rules import Rules, State
from hmx.envs.hackmatrix.rules.scenario import to_dict

pytestmark = pytest.mark.slow
DESIGNED = Rules(name="designed")
GAMES = 40
Scenario = dict[str, Any]


def unseen(scenario: Scenario, place: Mapping[str, Any]) -> bool:
    """Return whether a cryptog at a place is unseen."""
    player = scenario["player"]
    return not scenario.get("showActivated") and place["row"] != player["row"] and place["col"] != player["col"]


def place_of(item: Mapping[str, Any]) -> tuple[int, int]:
    """Return the cell of an item of a scenario."""
    return item["row"], item["col"]


def scenarios() -> list[Scenario]:
    """Return random positions without stacked entities."""
    rng = random.Random(5)
    originals: list[Scenario] = []
    while len(originals) < GAMES:
        scenario = random_scenario(rng)
        places = [place_of(item) for name in ("enemies", "transmissions") for item in scenario.get(name, [])]
        if len(set(places)) == len(places):
            originals.append(scenario)
    return originals


def repeated(scenario: Scenario) -> State:
    """Return one position in every game."""
    return load([scenario] * GAMES, DESIGNED)


def test_redrawn_games_look_the_same_and_differ_in_what_is_hidden() -> None:
    state = load(scenarios(), DESIGNED)
    drawn = [jax.jit(redrawn)(state, jax.random.bits(jax.random.key(seed), (2, GAMES))) for seed in range(3)]
    for one in drawn:
        np.testing.assert_array_equal(packed(one), packed(state))
        np.testing.assert_array_equal(one.next_scheduled, state.next_scheduled)  # the player can count turns
    for name in ("enemies", "transmissions", "cells"):
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
