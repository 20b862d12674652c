"""Reads the recorded transitions of the reference game and compares steps with them."""

from __future__ import annotations

import gzip
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oracle import from_dict, outcomes
from oracle_play import Result
from oracle_state import Position

Case = dict[str, Any]
CASES: list[Case] = json.loads(gzip.decompress((Path(__file__).parent / "cases.json.gz").read_bytes()))["cases"]


@dataclass
class Step(Result):
    """A step as it is compared with a recording."""

    valid: bool
    new_stage: bool


def play_before(case: Case) -> Position:
    """The position under test: the scenario after the actions that lead up to it, all of them deterministic."""
    pos = from_dict(case["position"])
    for action in case["before"]:
        found = outcomes(pos, action)
        assert found is not None and len(found) == 1 and found[0].spawns == 0 and not found[0].new_stage
        pos = found[0].position
    return pos


def close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-5)


def recorded_terms(allowed: Case) -> dict[str, float]:
    """The reference pays 64 for the last stage, where this game pays 100."""
    terms = dict(allowed["terms"])
    if terms["victory"] > 0:
        assert terms["stage_completion"] == 64
        terms["stage_completion"] = 100.0
    return terms


def internals(pos: Position) -> dict[str, Any]:
    """The counters and enemies as the recordings give them: enemies sorted."""
    enemies = [
        [*divmod(e.cell, 6), e.type, e.hp, e.disabled, e.stunned, e.from_siphon, e.from_schedule] for e in pos.enemies
    ]
    return {
        "turn": pos.turn,
        "schedule_interval": pos.interval,
        "next_scheduled_turn": pos.next_turn,
        "enemies": sorted(enemies),
    }


def after_stage(pos: Position) -> dict[str, int]:
    row, col = divmod(pos.cell, 6)
    values = {"stage": pos.stage, "row": row, "col": col, "hp": pos.hp, "credits": pos.credits}
    return values | {"energy": pos.energy, "data_siphons": pos.siphons, "score": pos.score}


def disagreements(step: Step, allowed: Case) -> list[str]:
    """What differs between a step and a recorded one; spawns and new boards are random and looked at elsewhere."""
    pos = step.position
    pairs: dict[str, tuple[Any, Any]] = {
        "done": (step.done, allowed["done"]),
        "valid": (step.valid, allowed["valid_action"]),
        "new_stage": (step.new_stage, allowed["stage_completed"] and not allowed["done"]),
    }
    if "after" in allowed:
        pairs["after"] = after_stage(pos), allowed["after"]
    if "internal" in allowed:
        pairs["internal"] = internals(pos), {**allowed["internal"], "enemies": sorted(allowed["internal"]["enemies"])}
    if "valid_actions" in allowed:
        pairs["mask"] = step.mask, allowed["valid_actions"]
    wrong = [f"{name}: {a} instead of {b}" for name, (a, b) in pairs.items() if a != b]
    terms = recorded_terms(allowed)
    wrong += [f"{k}: {step.terms[k]} instead of {v}" for k, v in terms.items() if not close(step.terms[k], v)]
    if not close(step.reward, sum(terms.values())):
        wrong.append(f"reward: {step.reward}")
    if "observation" in allowed:
        wrong += _observation(step, allowed["observation"], allowed["pending_spawns"])
    return wrong


def _observation(step: Step, recorded: Case, spawns: int) -> list[str]:
    expected = {(r, c, k): v for r, c, k, v in recorded["grid"]}
    pairs = enumerate(zip(step.player, recorded["player"], strict=True))
    wrong = [f"player[{i}]: {a} instead of {b}" for i, (a, b) in pairs if not close(a, b)]
    wrong += ["programs"] * ([k for k, owned in enumerate(step.programs) if owned] != recorded["programs"])
    for place in sorted(step.grid.keys() | expected.keys()):
        if not (spawns and place[2] == 36) and not close(step.grid.get(place, 0.0), expected.get(place, 0.0)):
            wrong.append(f"grid{place}: {step.grid.get(place)} instead of {expected.get(place)}")
    return wrong
