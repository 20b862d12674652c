"""The plan of a study: how much it would train."""

from __future__ import annotations

import pytest

from hmx.registry.derive import derive
from hmx.study.plan import plan_of


def test_plan_has_the_steps_that_halving_expects_and_those_of_the_confirmation(made) -> None:
    study = made.study(trials=9, rungs=(1 / 9, 1 / 3, 1.0), confirm_top=3, confirm_seeds=10)
    total = derive(study.base).total_env_steps
    planned = plan_of(study, steps_per_cpu_second=1000.0)
    assert [rung.trials for rung in planned.rungs] == [9, 3, 1]
    assert [rung.env_steps for rung in planned.rungs] == [round(total / 9), round(total / 3), total]
    assert planned.search_steps == pytest.approx(total * (9 / 9 + 3 * 2 / 9 + 1 * 2 / 3), abs=2)
    assert planned.confirm_steps == 10 * total  # one trial reaches the end, and runs on ten seeds
    assert planned.cpu_seconds == pytest.approx((planned.search_steps + planned.confirm_steps) / 1000)
