"""`hmx study new --dry-run`: what a study would run, and how long that would take."""

from __future__ import annotations

import dataclasses
import time
from contextlib import closing
from pathlib import Path

from hmx.records.plain import JsonResult
from hmx.registry.derive import derive
from hmx.registry.load import Loaded, bind
from hmx.study.records import Study, StudySettings
from hmx.study.status import steps_of

_SECONDS = 3.0  # of training, to measure its speed


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedRung:
    """A rung of a plan; the number of trials is what halving expects."""

    rung: int
    env_steps: int  # per seed, with the base configuration
    trials: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class StudyPlan(JsonResult):
    """The plan of a study: nothing has been written."""

    study: Path
    settings: StudySettings
    seeds: int
    rungs: tuple[PlannedRung, ...]
    search_steps: int  # expected environment steps, over all seeds
    confirm_steps: int
    steps_per_cpu_second: float | None  # over all seeds
    cpu_seconds: float | None


def plan_of(study: Study, steps_per_cpu_second: float | None = None) -> StudyPlan:
    """Return the plan of a study that is not written yet."""
    settings = study.settings
    search, confirm = steps_of(study)
    total = derive(study.base).total_env_steps
    return StudyPlan(
        study=study.folder,
        settings=settings,
        seeds=study.base.run.num_seeds,
        rungs=tuple(
            PlannedRung(rung=rung, env_steps=round(share * total), trials=max(settings.trials // settings.eta**rung, 1))
            for rung, share in enumerate(settings.rungs)
        ),
        search_steps=search,
        confirm_steps=confirm,
        steps_per_cpu_second=steps_per_cpu_second,
        cpu_seconds=(search + confirm) / steps_per_cpu_second if steps_per_cpu_second else None,
    )


def measure_speed(study: Study) -> float:
    """Return the environment steps per processor second of training, over all seeds, as measured for some seconds.

    Raises:
        HmxError: the configuration cannot run (exit code 2).
    """
    from hmx.jobs.train import check_run
    from hmx.reports.bench.hosted import make_updates
    from hmx.runs.session import open_task

    with closing(make_updates(check_run(open_task(bind(Loaded(study.base)))).session)) as updates:
        updates.update(1)
        begun, cpu, done = time.monotonic(), updates.cpu_seconds(), 0
        while time.monotonic() - begun < _SECONDS:
            updates.update(updates.length)
            done += updates.length
        return done * updates.steps / (updates.cpu_seconds() - cpu)
