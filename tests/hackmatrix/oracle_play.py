"""What a step looks like from outside, whoever computed it, and a way to play the plain-Python model at random."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from oracle import Outcome, legal, observe, outcomes, settle
from oracle_enemies import spawn_cells
from oracle_state import PROGRAM_NAMES, TYPES, Cell, Enemy, Position, Transmission


@dataclass
class Result:
    """Everything to be seen after a step."""

    position: Position
    terms: dict[str, float]
    done: bool
    mask: list[int]
    player: list[float]
    programs: list[int]
    grid: dict[tuple[int, int, int], float] = field(repr=False)

    @property
    def reward(self) -> float:
        return sum(self.terms.values())

    def enemy(self, row: int, col: int) -> Enemy:
        """The one enemy of a cell."""
        (found,) = self.position.enemies_at(row * 6 + col)
        return found

    def cell(self, row: int, col: int) -> Cell:
        return self.position.cells[row * 6 + col]

    def paid(self) -> dict[str, float]:
        """The terms that are not 0, but for the step penalty."""
        return {k: round(v, 5) for k, v in self.terms.items() if abs(v) > 1e-9 and k != "step_penalty"}


def result_of(outcome: Outcome) -> Result:
    player, programs, grid = observe(outcome.position)
    mask = legal(outcome.position)
    return Result(outcome.position, outcome.terms, outcome.done, mask, player, programs, grid)


def play(pos: Position, action: int, rng: random.Random) -> Result:
    """One outcome at random, its spawns placed at random; a new stage keeps an empty board."""
    found = outcomes(pos, action)
    assert found is not None
    outcome = rng.choice(found)
    trial = outcome.position.copy()
    spawned = []
    for i in range(outcome.spawns):
        schedule = i < outcome.scheduled
        cell = rng.choice(spawn_cells(trial))
        spawned.append(Transmission(cell, 1, rng.choice(TYPES), not schedule, schedule))
        trial.transmissions.append(spawned[-1])
    assert settle(outcome, spawned) is None
    return result_of(outcome)


def scene(at: tuple[int, int], **parts: Any) -> dict[str, Any]:
    """A scenario in few words: enemies (type, row, col, hp), transmissions (row, col, timer, type),
    data (row, col, points, spawn), programs (row, col, name, spawn), credits and energy (row, col, amount),
    siphons (row, col), owned (names); the other names are fields of the player or the scenario."""
    result: dict[str, Any] = {"player": {"row": at[0], "col": at[1]}, "blocks": [], "resources": []}
    result["enemies"] = [
        {
            "type": t,
            "row": r,
            "col": c,
            "hp": hp,
            "stunned": False,
            "spawnedFromSiphon": False,
            "isFromScheduledTask": False,
        }
        | {flag: True for flag in flags}
        for t, r, c, hp, *flags in parts.pop("enemies", ())
    ]
    result["transmissions"] = [
        {"row": r, "col": c, "turnsRemaining": timer, "enemyType": t}
        for r, c, timer, t in parts.pop("transmissions", ())
    ]
    for prefix in ("", "question_"):
        for r, c, points, spawn, *siphoned in parts.pop(f"{prefix}data", ()):
            block = {"row": r, "col": c, "type": f"{prefix}data".replace("_", "-"), "points": points}
            result["blocks"].append(block | {"spawnCount": spawn, "siphoned": bool(siphoned)})
        for r, c, name, spawn, *siphoned in parts.pop(f"{prefix}programs", ()):
            block = {"row": r, "col": c, "type": f"{prefix}program".replace("_", "-"), "programType": name}
            block |= {"programActionIndex": PROGRAM_NAMES.index(name) + 5}
            result["blocks"].append(block | {"spawnCount": spawn, "siphoned": bool(siphoned)})
    for kind in ("credits", "energy"):
        for r, c, amount in parts.pop(f"{kind}_at", ()):
            nothing = {"credits": 0, "energy": 0, "dataSiphon": False}
            result["resources"].append({"row": r, "col": c} | nothing | {kind: amount})
    for r, c in parts.pop("siphons", ()):
        result["resources"].append({"row": r, "col": c, "credits": 0, "energy": 0, "dataSiphon": True})
    result["ownedPrograms"] = [PROGRAM_NAMES.index(name) + 5 for name in parts.pop("owned", ())]
    for name in ("stage", "turn", "showActivated", "scheduledTasksDisabled"):
        if name in parts:
            result[name] = parts.pop(name)
    result["player"] |= parts
    return result
