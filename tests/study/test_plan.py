"""The plan of a study: how much it would train."""

from __future__ import annotations

import pytest

from hmx.registry.derive import derive
from hmx.study.plan import plan_of


def test_plan_has_the_steps_that_halving_expects_and_those_of_the_confirmation(made) -> None:
    study = made.study(trials=9, rungs=(1 / 9, 1 / 3, 1.0), confirm_top=3, confirm_seeds=10)
    batch, total = derive(study.base).batch_size, derive(study.base).total_env_steps
    assert total == 128 * batch  # of whole updates, a ninth is 15 and a third 43
    planned = plan_of(study, steps_per_cpu_second=1000.0)
    assert [rung.trials for rung in planned.rungs] == [9, 3, 1]
    assert [rung.env_steps for rung in planned.rungs] == [15 * batch, 43 * batch, total]
    assert planned.search_steps == batch * (9 * 15 + 3 * (43 - 15) + (128 - 43))
    assert planned.confirm_steps == 10 * total  # one trial reaches the end, and runs on ten seeds
    assert planned.cpu_seconds == pytest.approx((planned.search_steps + planned.confirm_steps) / 1000)
