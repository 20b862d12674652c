"""Seeded random positions, richer than play alone makes them: crowds, stacks, blocks under players, question blocks."""

from __future__ import annotations

import random
from typing import Any

from oracle_state import MAX_HP, PROGRAM_NAMES, PROGRAMS, TYPES

Scenario = dict[str, Any]
EXIT = (5, 5)


def _weighted(rng: random.Random, **weights: int) -> str:
    return rng.choices(list(weights), list(weights.values()))[0]


def _block(rng: random.Random, place: tuple[int, int]) -> Scenario:
    kind = rng.choice(["data", "program"])
    block: Scenario = {"row": place[0], "col": place[1], "type": kind, "siphoned": rng.random() < 0.25}
    if rng.random() < 0.25 and not block["siphoned"]:
        block["type"] = f"question-{kind}"
    block["spawnCount"] = 0 if block["siphoned"] else rng.choice([0, 0, 1, 1, 2, 3, rng.randint(0, 9)])
    if kind == "data":
        return block | {"points": rng.randint(0, 9)}
    k = rng.randrange(len(PROGRAMS))
    return block | {"programType": PROGRAM_NAMES[k], "programActionIndex": k + 5}


def _resource(rng: random.Random, place: tuple[int, int]) -> Scenario:
    amount = rng.randint(1, 3)
    credits = rng.random() < 0.5
    return {
        "row": place[0],
        "col": place[1],
        "credits": amount if credits else 0,
        "energy": 0 if credits else amount,
        "dataSiphon": rng.random() < 0.12,
    }


def _enemies(
    rng: random.Random, count: int, cells: list[tuple[int, int]], blocks: list[tuple[int, int]]
) -> list[Scenario]:
    result: list[Scenario] = []
    only = rng.choice(TYPES) if rng.random() < 0.2 else None
    for _ in range(count):
        kind = only or rng.choice(TYPES)
        how = _weighted(rng, free=80, block=15, stacked=8)
        if how == "stacked" and result:
            place = (result[-1]["row"], result[-1]["col"])
        else:
            place = rng.choice(blocks if how == "block" and blocks else cells)
        result.append(
            {
                "type": kind,
                "row": place[0],
                "col": place[1],
                "hp": rng.randint(1, MAX_HP[kind]),
                "stunned": rng.random() < 0.12,
                "spawnedFromSiphon": rng.random() < 0.3,
                "isFromScheduledTask": rng.random() < 0.3,
            }
        )
    return result


def _player(rng: random.Random, place: tuple[int, int]) -> Scenario:
    return {
        "row": place[0],
        "col": place[1],
        "hp": rng.choice([1, 1, 2, 3]),
        "credits": rng.choice([0, 1, 3, 8, 20, 20, 60]),
        "energy": rng.choice([0, 2, 4, 9, 20, 20, 60]),
        "dataSiphons": rng.choice([0, 1, 1, 2, 3, 12]),
        "attackDamage": rng.choice([1, 1, 1, 2, 3, 5]),
        "score": rng.choice([0, 7, 50]),
    }


def random_scenario(rng: random.Random, max_enemies: int = 6) -> Scenario:
    """One position, as the fields of a scenario. Transmissions never share a cell and never lie on a block."""
    everywhere = [(r, c) for r in range(6) for c in range(6)]
    rng.shuffle(everywhere)
    start = everywhere.pop()
    blocks = [p for p in everywhere if p != EXIT][: rng.choice([0, 3, 6, 9, 12, 20])]
    free = [p for p in everywhere if p not in blocks]
    if rng.random() < 0.1 and blocks:
        start = rng.choice(blocks)
    if rng.random() < 0.25:  # a crowd around the player
        near = [p for p in free if abs(p[0] - start[0]) + abs(p[1] - start[1]) <= 3] or free
    else:
        near = free
    enemies = _enemies(rng, rng.choice([0, 1, 2, 3, 4, max_enemies]), near, blocks)
    transmissions = [p for p in free if rng.random() < 0.12][: rng.choice([0, 1, 2, 5])]
    if rng.random() < 0.04 and start not in blocks:
        transmissions.append(start)
    share = rng.choice([0.0, 0.4, 0.9])
    owned = [k + 5 for k in range(len(PROGRAMS)) if rng.random() < rng.choice([0.3, 1.0])]
    return {
        "player": _player(rng, start),
        "enemies": enemies,
        "transmissions": [
            {"row": r, "col": c, "turnsRemaining": rng.choice([1, 1, 2, 4, 7]), "enemyType": rng.choice(TYPES)}
            for r, c in transmissions
        ],
        "blocks": [_block(rng, p) for p in blocks],
        "resources": [
            _resource(rng, p) for p in everywhere if p != EXIT and rng.random() < (0.05 if p in blocks else share)
        ],
        "stage": rng.choice([1, 1, 2, 3, 4, 5, 6, 7, 8]),
        "turn": rng.choice([0, 4, 9, 11, 12, 30]),
        "showActivated": rng.random() < 0.3,
        "scheduledTasksDisabled": rng.random() < 0.3,
        "ownedPrograms": owned,
    }


def scenarios(seed: int, count: int, max_enemies: int = 6) -> list[Scenario]:
    """The same `count` positions for the same seed."""
    rng = random.Random(seed)
    return [random_scenario(rng, max_enemies) for _ in range(count)]


def at_the_exit(rng: random.Random, last_stage: int = 7) -> Scenario:
    """A position one step before the exit, with enemies and transmissions that will stay."""
    scenario = random_scenario(rng, max_enemies=8)
    scenario["player"] |= {"row": 5, "col": 4}
    scenario["stage"] = rng.randint(1, last_stage)
    last_row = (5, 4), (5, 5)
    for name in ("blocks", "enemies", "transmissions"):
        scenario[name] = [x for x in scenario[name] if (x["row"], x["col"]) not in last_row]
    return scenario
