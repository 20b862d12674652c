"""How simulators are divided into workers and groups, and what their entry rules out before anything is built."""

from __future__ import annotations

import pytest

from hmx.config.schema import EnvConfig
from hmx.registry.workers import WorkerPlan, worker_plan, worker_problems


@pytest.mark.parametrize(
    ("options", "cores", "plan"),
    [
        ({"num_envs": 16}, 6, WorkerPlan(4, 4, 2)),
        ({"num_envs": 16}, 1, WorkerPlan(2, 8, 2)),
        ({"num_envs": 15}, 4, WorkerPlan(3, 5, 1)),
        ({"num_envs": 7}, 4, WorkerPlan(1, 7, 1)),
        ({"num_envs": 16, "async_factor": 1}, 6, WorkerPlan(4, 4, 1)),
        ({"num_envs": 16, "num_workers": 2}, 6, WorkerPlan(2, 8, 2)),
        ({"num_envs": 16, "envs_per_worker": 2}, 1, WorkerPlan(8, 2, 2)),
        ({"num_envs": 12, "async_factor": 3}, 8, WorkerPlan(6, 2, 3)),
    ],
)
def test_workers_divide_the_environments_and_groups_the_workers(options, cores, plan):
    env = EnvConfig(**options)
    assert worker_plan(env, cores) == plan
    assert list(worker_problems(env)) == []
    assert [plan.group(g) for g in range(plan.num_groups)][-1].stop == plan.num_envs == env.num_envs
