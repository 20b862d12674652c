"""The hand-worked positions of every row of the deviations table, put to the model and to the compiled game."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from compiled import load, read
from oracle import from_dict, legal, observe
from oracle_play import Result, play
from probe import Seen, grid_of, probe, take, views
from rows_all import ROWS, Row

SCENES = [r for r in ROWS if not r.boards]
GENERATION = {1, 20, 21}  # rows about new games and boards as a whole: test_generation.py


def _by_model(row: Row) -> list[Result]:
    pos = from_dict(row.scenario)
    results = [Result(pos, {}, False, legal(pos), *observe(pos))]
    rng = random.Random(row.number)
    for action in row.actions:
        results.append(play(results[-1].position, action, rng))
    return results


def _results(state: Any, seen: Seen | None) -> list[Result]:
    """What is seen of every game of a batch, after a step or without one."""
    player, programs, grid, mask = views(state)
    results = []
    for i, pos in enumerate(read(state)):
        terms = {name: float(value[i]) for name, value in seen.timestep.terms.items()} if seen else {}
        done = bool(seen.timestep.terminated[i]) if seen else False
        owned = programs[i].astype(int).tolist()
        valid = np.flatnonzero(mask[i]).tolist()
        results.append(Result(pos, terms, done, valid, player[i].tolist(), owned, grid_of(grid[i])))
    return results


@pytest.fixture(scope="module")
def compiled() -> list[list[Result]]:
    """All rows played side by side; a row that is through drops out."""
    state = load([row.scenario for row in ROWS])
    results = [[r] for r in _results(state, None)]
    active = list(range(len(ROWS)))
    for turn in range(max(len(row.actions) for row in ROWS)):
        going = [k for k, i in enumerate(active) if len(ROWS[i].actions) > turn]
        active = [active[k] for k in going]
        seen = probe(take(state, going), [ROWS[i].actions[turn] for i in active], seed=turn)
        state = seen.after
        for i, result in zip(active, _results(state, seen), strict=True):
            results[i].append(result)
    return results


@pytest.mark.parametrize("row", SCENES, ids=lambda row: f"{row.number}-{row.name}")
def test_model_produces_the_row(row: Row) -> None:
    row.check(_by_model(row))


@pytest.mark.parametrize("i", range(len(ROWS)), ids=lambda i: f"{ROWS[i].number}-{ROWS[i].name}")
def test_compiled_game_produces_the_row(i: int, compiled: list[list[Result]]) -> None:
    ROWS[i].check(compiled[i])


def test_every_row_has_a_position() -> None:
    assert {row.number for row in ROWS} | GENERATION >= set(range(1, 45))
