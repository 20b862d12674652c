"""The plain-Python model against 400 recorded transitions of the reference game."""

from __future__ import annotations

import pytest
from oracle import Outcome, legal, observe, outcomes
from recorded import CASES, Case, Step, disagreements, play_before


def _step(outcome: Outcome) -> Step:
    pos, view = outcome.position, observe(outcome.position)
    return Step(pos, outcome.terms, outcome.done, legal(pos), *view, valid=outcome.valid, new_stage=outcome.new_stage)


def _compare(outcome: Outcome, allowed: Case) -> list[str]:
    wrong = disagreements(_step(outcome), allowed)
    return wrong + ["spawns"] * (outcome.spawns != allowed["pending_spawns"])


def test_recorded_file_covers_every_kind_of_action() -> None:
    assert len(CASES) == 400
    actions = {case["action"] for case in CASES}
    assert actions == set(range(28)), "every action is recorded at least once"
    allowed = [a for case in CASES for a in case["allowed"]]
    assert any(a["stage_completed"] for a in allowed)
    assert any(not a["valid_action"] for a in allowed)
    assert any(a["done"] and a["valid_action"] for a in allowed)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_recorded_transition_is_reproduced(case: Case) -> None:
    pos = play_before(case)
    assert legal(pos) == case["valid_actions_before"]
    found = outcomes(pos, case["action"])
    assert found is not None
    unmatched = list(case["allowed"])
    for outcome in found:
        problems = [_compare(outcome, allowed) for allowed in unmatched]
        assert [] in problems, f"the model allows what the reference does not: {problems}"
        unmatched.pop(problems.index([]))
    assert not unmatched, "the reference allows what the model does not"
