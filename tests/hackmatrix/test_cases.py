"""The compiled game and environment against 400 recorded transitions of the reference game."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from compiled import load, read
from probe import Seen, grid_of, legal_actions, padded, probe, take
from recorded import CASES, Case, Step, disagreements


def _before(state: Any) -> Any:
    """Plays the actions that lead up to the positions under test, each round in the games that have one."""
    state = take(state, range(len(CASES)))
    for turn in range(max(len(case["before"]) for case in CASES)):
        active = [i for i, case in enumerate(CASES) if len(case["before"]) > turn]
        seen = probe(take(state, active), [CASES[i]["before"][turn] for i in active], seed=turn)

        def put(leaf: np.ndarray, new: np.ndarray, active: list[int] = active) -> np.ndarray:
            leaf = leaf.copy()
            leaf[..., active] = new
            return leaf

        state = jax.tree.map(put, state, seen.after)
    return state


@pytest.fixture(scope="module")
def start() -> Any:
    return _before(load([case["position"] for case in CASES]))


@pytest.fixture(scope="module")
def steps(start: Any) -> list[Step]:
    seen = probe(start, [case["action"] for case in CASES], seed=99)
    positions = read(seen.after)
    return [_step(seen, i, positions[i]) for i in range(len(CASES))]


def _step(seen: Seen, i: int, pos: Any) -> Step:
    player, programs, grid = (np.asarray(part[i]) for part in seen.final)
    completed, won = bool(seen.events.stage_completed[i]), bool(seen.events.victory[i])
    return Step(
        pos,
        {name: float(values[i]) for name, values in seen.timestep.terms.items()},
        bool(seen.timestep.terminated[i]),
        np.flatnonzero(seen.legal[:, i]).tolist(),
        player.tolist(),
        programs.tolist(),
        grid_of(grid),
        valid=bool(seen.events.valid[i]),
        new_stage=completed and not won,
    )


def test_masks_match_recorded_positions(start: Any) -> None:
    mask = np.asarray(legal_actions(padded(start)))
    wrong = [c["id"] for i, c in enumerate(CASES) if np.flatnonzero(mask[:, i]).tolist() != c["valid_actions_before"]]
    assert wrong == []


@pytest.mark.parametrize("i", range(len(CASES)), ids=lambda i: CASES[i]["id"])
def test_recorded_transition_is_reproduced(i: int, steps: list[Step]) -> None:
    problems = [disagreements(steps[i], allowed) + _spawns(steps[i], allowed) for allowed in CASES[i]["allowed"]]
    assert [] in problems


def _spawns(step: Step, allowed: Case) -> list[str]:
    """As many transmissions as the recording has, with those that appeared on random cells."""
    if "observation" not in allowed:
        return []
    known = sum(1 for entry in allowed["observation"]["grid"] if entry[2] == 36)
    count = len(step.position.transmissions)
    return [f"{count} transmissions"] * (count != known + allowed["pending_spawns"])
