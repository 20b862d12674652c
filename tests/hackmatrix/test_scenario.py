"""Scenarios: what a dictionary sets up, what is read back, and what is said about mistakes."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from compiled import RULES, differences, load, read
from oracle import from_dict
from positions import scenarios
from recorded import CASES

from hmx.envs.hackmatrix import rules as game
from hmx.envs.hackmatrix.rules import scenario
from hmx.errors import HmxError


def _one(state: game.State, i: int) -> game.State:
    return jax.tree.map(lambda leaf: np.asarray(leaf)[..., i], state)


def test_position_reads_like_the_model() -> None:
    given = [case["position"] for case in CASES[:60]] + scenarios(7, 60)
    for one, actual in zip(given, read(load(given)), strict=True):
        assert differences(from_dict(one, undo_depth=RULES.undo_depth), actual) == []


def test_position_round_trip() -> None:
    """What the format cannot name is left out: flags of transmissions, marks on open cells, counters."""
    given = scenarios(8, 12)
    state = load(given)
    again = load([scenario.to_dict(_one(state, i)) for i in range(len(given))])
    for a, b in zip(read(state), read(again), strict=True):
        for pos in (a, b):
            pos.cells = [c if c.block else c._replace(siphoned=False) for c in pos.cells]
        assert differences(a, b) == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "player"),
        ({"player": {"row": 6, "col": 0}}, "0 to 5"),
        ({"player": {"row": 0, "col": 0, "hpp": 1}}, "'hp'"),
        ({"player": {"row": 0, "col": 0}, "enemys": []}, "'enemies'"),
        ({"player": {"row": 0, "col": 0}, "enemies": [{"row": 0, "col": 0, "type": "vires", "hp": 1}]}, "'virus'"),
        ({"player": {"row": 0, "col": 0}, "enemies": [{"row": 0, "col": 0, "type": "virus", "hp": 3}]}, "1 to 2"),
        ({"player": {"row": 0, "col": 0}, "blocks": [{"row": 0, "col": 0, "type": "data", "points": "5"}]}, "'5'"),
        ({"player": {"row": 0, "col": 0}, "ownedPrograms": [4]}, "5 to 27"),
        ({"player": {"row": 0, "col": 0}, "stage": 9}, "1 to 8"),
        ({"player": {"row": 0, "col": 0}, "transmissions": 3}, "must be a list"),
    ],
)
def test_mistakes_in_a_scenario_are_named(given: dict, said: str) -> None:
    with pytest.raises(HmxError, match=r".") as caught:
        scenario.from_dict(given)
    assert said in caught.value.message
    assert caught.value.hint


def test_all_mistakes_are_listed_together() -> None:
    with pytest.raises(HmxError) as caught:
        scenario.from_dict({"player": {"row": 9, "col": -1, "hp": 7}, "turn": -4})
    assert caught.value.message.count("\n") == 3
