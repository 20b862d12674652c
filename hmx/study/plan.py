"""`hmx study new --dry-run`: what a study would run, and how long that would take."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

from hmx.config.problem import line
from hmx.records.plain import JsonResult
from hmx.registry.check import known_problems
from hmx.registry.derive import derive
from hmx.study.records import Proposal, Study, StudySettings, Trial, trial_folder
from hmx.study.samplers import next_turn, propose
from hmx.study.space import with_values
from hmx.study.status import steps_of

_EXAMINED = 50  # proposals that are checked
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
    examined: int  # proposals that were checked without being built
    refused: int  # of these
    reasons: tuple[str, ...]  # different ones


def plan_of(study: Study, steps_per_cpu_second: float | None = None) -> StudyPlan:
    """Return the plan of a study that is not written yet."""
    settings = study.settings
    search, confirm = steps_of(study)
    examined, reasons = _examine(study)
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
        examined=examined,
        refused=len(reasons),
        reasons=tuple(dict.fromkeys(reasons)),
    )


def _examine(study: Study) -> tuple[int, list[str]]:
    """Return how many of the first proposals were checked, and why each refused one is."""
    reasons: list[str] = []
    examined = 0
    while len(study.trials) < _EXAMINED and (turn := next_turn(study)) is not None:
        values = propose(study, turn, ())
        problems = known_problems(with_values(study.configs, values))
        refused = "; ".join(line(problem) for problem in problems)
        reasons += [refused] if refused else []
        examined += 1
        sampler = study.settings.sampler
        proposal = Proposal(number=turn.number, values=values, sampler=sampler, revision=1, refused=refused)
        trial = Trial(**vars(proposal), folder=trial_folder(study.folder, turn.number))
        study = dataclasses.replace(study, trials=(*study.trials, trial))
    return examined, reasons


def measure_speed(study: Study) -> float:
    """Return the environment steps per processor second of training, over all seeds, as measured for some seconds.

    Raises:
        HmxError: the configuration cannot run (exit code 2).
    """
    from hmx.jobs.train import check_run, prepare
    from hmx.reports.bench.measure import Updates

    updates = Updates(check_run(*prepare(study.base)).session)
    updates.update(1)
    begun, cpu, done = time.monotonic(), time.process_time(), 0
    while time.monotonic() - begun < _SECONDS:
        updates.update(updates.length)
        done += updates.length
    return done * updates.steps / (time.process_time() - cpu)
