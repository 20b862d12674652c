"""An independent model of HackMatrix in plain Python, written from the rules alone and slow on purpose.

`outcomes(position, action)` lists everything that may follow, over all enemy orders, POLY draws and WARP targets.
New transmissions and new boards are random in too many ways to list: an outcome says how many transmissions appear
(`scheduled`, `siphoned`) or that a new stage begins (`new_stage`), and `settle` takes over the ones that did appear.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from oracle_actions import Done, allowed, perform
from oracle_enemies import TooMany, enemy_turn, spawn
from oracle_observe import observe
from oracle_state import (
    ACTIONS,
    DATA,
    NEIGHBOURS,
    SIPHON,
    WAIT,
    Cell,
    Position,
    Transmission,
    cross,
    from_dict,
    manhattan,
)

STAGE_REWARDS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 100.0)
TERMS = (
    "step_penalty",
    "stage_completion",
    "score_gain",
    "kills",
    "data_siphon",
    "distance_shaping",
    "victory",
    "death_penalty",
    "siphon_death_penalty",
    "resource_gain",
    "resource_holding",
    "damage_penalty",
    "hp_recovery",
    "siphon_quality",
    "program_waste",
)
RESET = 19
COUNTS = (
    "valid",
    "stage_completed",
    "victory",
    "died",
    "siphon_death",
    "score",
    "kills",
    "data_siphon",
    "distance",
    "credits",
    "energy",
    "hp",
    "missed_credits",
    "missed_energy",
    "reset_wasted",
)
Counts = dict[str, int]


@dataclass
class Outcome:
    position: Position
    counts: Counts
    terms: dict[str, float]
    done: bool
    scheduled: int = 0
    siphoned: int = 0
    new_stage: bool = False

    @property
    def valid(self) -> bool:
        return bool(self.counts["valid"])

    @property
    def reward(self) -> float:
        return sum(self.terms.values())

    @property
    def spawns(self) -> int:
        return self.scheduled + self.siphoned


def legal(pos: Position) -> list[int]:
    """The actions of the mask, in order."""
    return [a for a in ACTIONS if allowed(pos, a)]


def exit_distance(pos: Position) -> int:
    """Steps to the stored exit around blocks; 0 where there is no way."""
    steps = {pos.cell: 0}
    queue = deque([pos.cell])
    while queue:
        here = queue.popleft()
        if here == pos.exit:
            return steps[here]
        for there in NEIGHBOURS[here]:
            if there not in steps and (there == pos.exit or not pos.blocked(there)):
                steps[there] = steps[here] + 1
                queue.append(there)
    return 0


def _yield(pos: Position, cell: int) -> tuple[list[int], set[int], int, int]:
    """Data values, unowned programs, credits and energy that a siphon at `cell` would bring."""
    if pos.blocked(cell):
        return [], set(), 0, 0
    reach = [pos.cells[c] for c in cross(cell) if not pos.cells[c].siphoned]
    values = sorted(c.value for c in reach if c.block and c.content == DATA)
    programs = {c.value for c in reach if c.block and c.content != DATA} - pos.owned
    plain = [c for c in reach if not c.block]
    return values, programs, sum(c.credits for c in plain), sum(c.energy for c in plain)


def missed(pos: Position) -> tuple[int, int]:
    """Credits and energy that another place with the same blocks would have brought on top."""
    values, programs, credits, energy = _yield(pos, pos.cell)
    must = []
    if values or programs:
        must = [c for c in cross(pos.cell) if pos.blocked(c) and not pos.cells[c].siphoned]
    better = []
    for cell in range(36):
        if pos.blocked(cell) or any(manhattan(cell, m) > 1 for m in must):
            continue
        v, p, c, e = _yield(pos, cell)
        if v == values and p == programs and c >= credits and e >= energy and (c > credits or e > energy):
            better.append((c, e))
    if not better:
        return 0, 0
    return max(c for c, _ in better) - credits, max(e for _, e in better) - energy


def complete_stage(pos: Position) -> bool:
    """What is known of the position after the exit; returns whether the game is won."""
    pos.hp = min(3, pos.hp + 1)
    if pos.stage == 8:
        return True
    pos.stage += 1
    pos.interval = pos.next_turn = 13 - pos.stage
    pos.turn = pos.atk_uses = 0
    pos.show = pos.calm = pos.step_active = False
    pos.cells = [Cell() for _ in pos.cells]
    return False


def count(before: Position, action: int, done: Done, after: Position, won: bool, enemies_moved: bool) -> Counts:
    """What happened in a valid step, as whole numbers."""
    dead = after.hp == 0
    if dead:
        closer = 0
    elif done.left:
        closer = exit_distance(before)
    else:
        closer = exit_distance(before) - exit_distance(after)
    siphon_near = any(e.from_siphon and manhattan(e.cell, after.cell) == 1 for e in after.enemies)
    missed_credits, missed_energy = missed(before) if action == SIPHON else (0, 0)
    return {
        "valid": 1,
        "stage_completed": before.stage if done.left else 0,
        "victory": int(won),
        "died": int(dead),
        "siphon_death": int(dead and enemies_moved and siphon_near),
        "score": after.score - before.score,
        "kills": done.kills,
        "data_siphon": int(done.picked_siphon),
        "distance": max(0, closer),
        "credits": after.credits - before.credits,
        "energy": after.energy - before.energy,
        "hp": after.hp - before.hp,
        "missed_credits": missed_credits,
        "missed_energy": missed_energy,
        "reset_wasted": int(action == RESET and before.hp == 2),
    }


def price(n: Counts, after: Position) -> dict[str, float]:
    """The reward terms of a valid step."""
    done_stage = n["stage_completed"]
    return {
        "step_penalty": -0.01,
        "stage_completion": STAGE_REWARDS[done_stage - 1] if done_stage else 0.0,
        "score_gain": 0.5 * n["score"],
        "kills": 0.3 * n["kills"],
        "data_siphon": 1.0 * n["data_siphon"],
        "distance_shaping": 0.05 * n["distance"],
        "victory": (500.0 + 100.0 * after.score) * n["victory"],
        "death_penalty": -0.5 * (2 ** (after.stage - 1) - 1) * n["died"],
        "siphon_death_penalty": -10.0 * n["siphon_death"],
        "resource_gain": 0.05 * (n["credits"] + n["energy"]),
        "resource_holding": 0.01 * (after.credits + after.energy) if done_stage else 0.0,
        "damage_penalty": -1.0 * max(0, -n["hp"]),
        "hp_recovery": 1.0 * max(0, n["hp"]),
        "siphon_quality": -0.5 * 0.05 * (n["missed_credits"] + n["missed_energy"]),
        "program_waste": -0.3 * n["reset_wasted"],
    }


def outcomes(pos: Position, action: int, cap: int = 3000) -> list[Outcome] | None:
    """Every different outcome, or None when listing them takes more than about `cap` steps."""
    if not allowed(pos, action):
        return [Outcome(pos.copy(), dict.fromkeys(COUNTS, 0), dict.fromkeys(TERMS, 0.0), done=True)]
    found: dict[object, Outcome] = {}
    try:
        for done in perform(pos, action, cap):
            for outcome in _finish(pos, action, done, cap):
                key = outcome.position.key(), tuple(outcome.counts.values())
                found.setdefault(key, outcome)
    except TooMany:
        return None
    return list(found.values())


def _finish(before: Position, action: int, done: Done, cap: int) -> list[Outcome]:
    won = done.left and complete_stage(done.pos)
    if done.left or (action > SIPHON and action != WAIT):
        ends, enemies_moved = [(done.pos, 0, 0)], False
    else:
        ends, enemies_moved = list(enemy_turn(done.pos, cap)), True
    result = []
    for end, scheduled, siphoned in ends:
        n = count(before, action, done, end, won, enemies_moved)
        over = won or end.hp == 0
        result.append(Outcome(end, n, price(n, end), over, scheduled, siphoned, new_stage=done.left and not won))
    return result


def settle(outcome: Outcome, spawned: list[Transmission]) -> str | None:
    """Adds the transmissions that appeared, to position and newest snapshot; returns what is wrong, if anything."""
    expected = [(True, False)] * outcome.scheduled + [(False, True)] * outcome.siphoned
    flags = [(t.from_schedule, t.from_siphon) for t in spawned]
    if flags != expected or any(t.timer != 1 for t in spawned):
        return f"expected {expected} (from_schedule, from_siphon) with timer 1, not {spawned}"
    problem = spawn(outcome.position, spawned)
    if spawned and problem is None:
        outcome.position.history[-1] = outcome.position.snapshot()
    return problem


__all__ = ["Outcome", "from_dict", "legal", "observe", "outcomes", "settle"]
