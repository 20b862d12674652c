"""The draws within a step: enemy order, POLY, WARP, spawns. All outcomes come as often as the rules say."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest
from compiled import load, read
from oracle import from_dict
from oracle_enemies import _Turn, spawn_cells
from oracle_play import scene
from oracle_state import TYPES, Position
from probe import BATCH, probe, take
from rows import POLY, RICH, SIPHON, WAIT, WARP
from statistics_of import SURPRISE, fits, spread, uniform

pytestmark = pytest.mark.slow
ROUNDS = 6


def _sample(scenario: dict[str, Any], action: int) -> list[Position]:
    """The same step many times, with other keys."""
    state = take(load([scenario]), [0] * BATCH)
    return [pos for seed in range(ROUNDS) for pos in read(probe(state, [action] * BATCH, 50 + seed).after)]


def _exact(pos: Position) -> dict[tuple[int, ...], float]:
    """Where the enemies end up, with its probability: both steps in uniformly random orders, by brute force."""
    turn = _Turn(pos)
    viruses = [i for i, e in enumerate(pos.enemies) if e.type == "virus"]
    shares: Counter[tuple[int, ...]] = Counter()
    first, second = (list(itertools.permutations(x)) for x in (range(len(pos.enemies)), viruses))
    for order, again in itertools.product(first, second):
        cells, attacked, hp = tuple(e.cell for e in pos.enemies), 0, pos.hp
        for i in order:
            cells, attacked, hp = turn.act(i, cells, attacked, hp)
        for i in again:
            if not attacked >> i & 1:
                cells, attacked, hp = turn.act(i, cells, attacked, hp)
        shares[cells] += 1
    return {cells: n / (len(first) * len(second)) for cells, n in shares.items()}


def test_enemies_act_in_uniformly_random_order() -> None:
    crowd = [("virus", 0, 3, 2), ("virus", 1, 2, 2), ("virus", 2, 1, 2), ("daemon", 3, 0, 3), ("glitch", 1, 3, 2)]
    scenario = scene((0, 0), owned=["wait"], **RICH, enemies=crowd)
    exact = _exact(from_dict(scenario))
    assert len(exact) > 8, "the order matters"
    assert fits([tuple(e.cell for e in pos.enemies) for pos in _sample(scenario, WAIT)], exact) > SURPRISE


def test_poly_draws_types_independently() -> None:
    kinds = ("daemon", "virus", "cryptog")
    crowd = [(kind, 5, c, 2) for c, kind in enumerate(kinds)]
    ends = [
        tuple(e.type for e in pos.enemies)
        for pos in _sample(scene((0, 0), owned=["poly"], **RICH, enemies=crowd), POLY)
    ]
    # A daemon at 2 of 3 becomes 1 of 2, so everybody lives.
    assert uniform(ends, list(itertools.product(*([t for t in TYPES if t != k] for k in kinds)))) > SURPRISE


def test_warp_chooses_enemies_and_transmissions_uniformly() -> None:
    stack = [("daemon", 3, 3, 3), ("virus", 3, 3, 2), ("virus", 1, 1, 2)]
    scenario = scene((0, 0), owned=["warp"], **RICH, enemies=stack, transmissions=[(4, 4, 5, "virus")])
    ends = [pos.cell for pos in _sample(scenario, WARP)]
    assert fits(ends, {21: 2.0, 7: 1.0, 28: 1.0}) > SURPRISE


def test_spawn_cells_and_types_have_their_distribution() -> None:
    scenario = scene((2, 2), dataSiphons=1, turn=11, data=[(2, 3, 1, 2), (4, 2, 1, 0), (0, 0, 1, 0)])
    ranks, types, pairs = [], [], []
    for pos in _sample(scenario, SIPHON):
        born, pos.transmissions = list(pos.transmissions), []
        for t in born:
            cells = spawn_cells(pos)
            ranks.append((cells.index(t.cell), len(cells)))
            pos.transmissions.append(t)
        types += [t.type for t in born]
        pairs.append(tuple(t.type for t in born))
    assert spread(ranks) > SURPRISE
    assert uniform(types, TYPES) > SURPRISE
    assert uniform(pairs, list(itertools.product(TYPES, repeat=len(pairs[0])))) > SURPRISE
    assert len(ranks) == 2 * BATCH * ROUNDS


def test_games_of_a_batch_use_different_random_numbers() -> None:
    """Neighbours in a batch, and the same game at the next step, share no draws."""
    scenario = scene((2, 2), turn=11, owned=["wait"], **RICH)
    state = take(load([scenario]), [0] * BATCH)
    cells = [
        np.array([pos.transmissions[0].cell for pos in read(probe(state, [WAIT] * BATCH, seed).after)])
        for seed in (1, 2)
    ]
    chance = len(set(cells[0])) ** -1
    limit = chance + 5 * (chance / BATCH) ** 0.5
    assert (cells[0] == cells[1]).mean() < limit
    assert (cells[0][1:] == cells[0][:-1]).mean() < limit
