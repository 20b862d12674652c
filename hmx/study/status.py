"""`hmx study status`: the state of every trial, what is left, and the trials that lead."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from hmx.records import meta
from hmx.records.lock import holding
from hmx.records.paths import META
from hmx.records.plain import JsonResult, JsonValue, ShortRepr
from hmx.registry.derive import derive
from hmx.reports.compare.request import CompareRequest
from hmx.study.folder import read_study
from hmx.study.halving import expected_at, update_at
from hmx.study.records import Confirmation, Objective, RungResult, Study, StudySettings, Trial, TrialState
from hmx.study.state import Standing, standing

if TYPE_CHECKING:
    from hmx.stats.estimate import Estimate

SHOWN = 5  # leading trials in a list


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunningTask:
    """A run that a worker trains now."""

    trial: int
    confirms: bool
    host: str
    pid: int
    since: str
    rung: int
    update: int  # of its newest checkpoint


@dataclasses.dataclass(frozen=True, kw_only=True)
class RankedTrial:
    """One of the leading trials."""

    trial: int
    label: str
    values: dict[str, JsonValue]
    rung: int
    objective: float | None
    low: float | None  # 95 % interval over the seeds
    high: float | None
    confirmed: float | None = None  # objective on fresh seeds
    confirmed_low: float | None = None
    confirmed_high: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class StudyStatus(ShortRepr, JsonResult):
    """A study as it is now."""

    study: Path
    settings: StudySettings
    states: dict[TrialState, int]
    rungs: tuple[int, ...]  # trials with a result, by rung
    running: tuple[RunningTask, ...]
    refused: dict[str, int]  # reason -> trials
    failed: dict[str, int]
    confirmed: int  # confirmations with a result
    confirmations: int
    standing: Standing
    leading: tuple[RankedTrial, ...]  # as in `Standing.ranked`
    steps_done: int  # environment steps of all results, over all seeds
    steps_expected: int  # of the whole study, with its confirmations
    cpu_seconds: float | None  # processor time of all runs until now; None if unknown
    cpu_seconds_left: float | None  # at the same speed
    finished: bool


def study_status(folder: str | Path, shown: int = SHOWN) -> StudyStatus:
    """Return the status of a study; nothing is changed.

    Raises:
        HmxError: it is not a study, or one of its files is damaged (exit code 3).
    """
    study = read_study(folder)
    running = running_tasks(study)
    held = {task.trial for task in running if not task.confirms}
    states = Counter(state_of(study, trial, held) for trial in study.trials)
    done, expected, spent = steps_done(study), sum(steps_of(study)), cpu_seconds(study)
    now = standing(study)
    return StudyStatus(
        study=study.folder,
        settings=study.settings,
        states=dict(states),
        rungs=tuple(sum(len(trial.rungs) > rung for trial in study.trials) for rung in range(study.last_rung + 1)),
        running=running,
        refused=dict(Counter(trial.refused for trial in study.trials if trial.refused)),
        failed=dict(Counter(trial.failed for trial in study.trials if trial.failed)),
        confirmed=len(study.confirmed),
        confirmations=len(study.confirmations),
        standing=now,
        leading=tuple(ranked_trial(study, trial) for trial in now.ranked[:shown]),
        steps_done=done,
        steps_expected=expected,
        cpu_seconds=spent,
        cpu_seconds_left=spent * max(expected / done - 1, 0) if spent and done else None,
        finished=now.state == "finished",
    )  # fmt: skip


def state_of(study: Study, trial: Trial, running: set[int]) -> TrialState:
    """Return the state of a trial; `running` are the trials that a worker holds."""
    if trial.refused:
        return "refused"
    if trial.failed:
        return "failed"
    if len(trial.rungs) > study.last_rung:
        return "finished"
    if not trial.open:
        return "paused"
    return "running" if trial.number in running else "waiting"


def running_tasks(study: Study) -> tuple[RunningTask, ...]:
    """Return the runs that a process holds now; locks of finished trials are not looked at."""
    running = []
    for run in study.runs:
        try:
            found = holding(run.paths) if run.open else None
        except OSError:
            continue
        if found and found.state == "held":
            owner, known = found.owner, meta.find(run.paths.meta)
            running.append(RunningTask(
                trial=run.number, confirms=isinstance(run, Confirmation), rung=len(run.rungs),
                update=known.update if known else 0, host=owner.host if owner else "", pid=owner.pid if owner else 0,
                since=owner.since if owner else "",
            ))  # fmt: skip
    return tuple(running)


def ranked_trial(study: Study, trial: Trial) -> RankedTrial:
    """Return a trial with the interval of its objective, and its objective on fresh seeds if that is known."""
    interval = over_seeds(trial.rungs[-1], study.settings.objective)
    confirmed = study.confirmed.get(trial.number)
    fresh = over_seeds(confirmed.result, study.settings.objective) if confirmed and confirmed.result else None
    return RankedTrial(
        trial=trial.number,
        label=trial.label,
        values=trial.values,
        rung=len(trial.rungs) - 1,
        objective=trial.objective,
        low=interval.low if interval else None,
        high=interval.high if interval else None,
        confirmed=confirmed.objective if confirmed else None,
        confirmed_low=fresh.low if fresh else None,
        confirmed_high=fresh.high if fresh else None,
    )


def over_seeds(result: RungResult, objective: Objective) -> Estimate | None:
    """Estimate the objective of a trial as `hmx compare` does; there is no interval if a seed has no value."""
    from hmx.stats.estimate import Estimate

    known = [value for value in result.per_seed if value is not None]
    if result.objective is None or len(known) < len(result.per_seed):
        return None if result.objective is None else Estimate(result.objective)
    if objective.threshold is not None:
        from hmx.stats.intervals import median_interval

        return Estimate(result.objective, *(median_interval(known) or ()))
    import numpy as np

    from hmx.stats.aggregates import iqm_estimate

    return iqm_estimate([np.array(known)], CompareRequest.samples)


def steps_done(study: Study) -> int:
    """Return the environment steps of all results, over all seeds."""
    return sum(run.result.env_steps * len(study.seeds_of(run)) for run in study.runs if run.result)


def steps_of(study: Study) -> tuple[int, int]:
    """Return the expected environment steps of the whole search and of all confirmations, over all seeds.

    One of `eta` trials is expected to continue at each rung, and each run to have the steps of the base configuration.
    """
    settings, sizes = study.settings, derive(study.base)
    updates = [update_at(sizes.num_updates, share) for share in settings.rungs]
    further = [now - before for before, now in zip([0, *updates], updates, strict=False)]
    search = sum(expected_at(settings, rung) * more for rung, more in enumerate(further)) * sizes.batch_size
    top = min(settings.confirm_top, expected_at(settings, study.last_rung))
    return search * study.base.run.num_seeds, top * settings.confirm_seeds * sizes.total_env_steps


def cpu_seconds(study: Study) -> float | None:
    """Return the processor time of all runs, as their last checkpoints recorded it; None before the first."""
    return sum(filter(None, (cpu_seconds_of(run.folder) for run in (*study.accepted, *study.confirmations)))) or None


def cpu_seconds_of(run: Path) -> float | None:
    """Return the processor time of a run until its last checkpoint, by its folder; None if it is unknown."""
    known = meta.find(run / META)
    return (known.cpu_seconds or None) if known else None
