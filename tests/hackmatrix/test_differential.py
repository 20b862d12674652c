"""The compiled game against the plain-Python model, on thousands of random positions and everything possible there.

Set GAME_STEPS to compare many more steps, GAME_SEED to compare others.
"""

from __future__ import annotations

import os

import pytest
from differential import Report, run

pytestmark = pytest.mark.slow
STEPS = int(os.environ.get("GAME_STEPS", "6000"))
SEED = int(os.environ.get("GAME_SEED", "1"))


@pytest.fixture(scope="module")
def report() -> Report:
    return run(SEED, STEPS)


def test_every_step_is_possible_in_the_model(report: Report) -> None:
    assert report.mismatches == []
    assert report.steps >= STEPS
    assert report.skipped <= report.steps // 50


def test_every_action_and_rare_situations_occur(report: Report) -> None:
    assert set(report.actions) == set(range(28))
    assert min(report.actions.values()) >= 10
    assert {name: report.notes[name] for name in report.notes if report.notes[name] < 5} == {}
    assert len(report.notes) == 10, f"not all situations were met: {report.notes}"
