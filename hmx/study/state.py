"""The state of a study and its next step: every command, page and function that names one reads it here."""

from __future__ import annotations

import dataclasses
import shlex
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from hmx.errors import counted
from hmx.records.paths import METRICS
from hmx.registry.environments import step_limit
from hmx.reports.compare.request import EVALUATION
from hmx.study.confirm import confirmations_due, search_is_finished
from hmx.study.records import CONFIG_KEY, CONFIGS, Confirmation, Objective, Study, Trial
from hmx.study.request import DEFAULT_CONFIRM
from hmx.study.space import text_of

StudyState = Literal["new", "searching", "confirming", "finished", "failed"]
"""failed: no worker will find anything to do, and there is no value to choose by."""

MOST_REFUSED = 50  # trials refused in a row after which the study is not worth continuing


@dataclasses.dataclass(frozen=True)
class Advice:
    """What to do next, and the command that does it."""

    text: str
    command: str


@dataclasses.dataclass(frozen=True)
class Standing:
    """Where a study stands."""

    state: StudyState
    reason: str  # why it is in this state
    next: Advice
    choice: int | None = None  # number of the trial to use; None until that is decided
    confirmed: bool = False  # whether fresh seeds decided it
    caution: str = ""  # what speaks against the choice of the search
    ranked: Sequence[Trial] = dataclasses.field(default=(), metadata={"json": False})
    """Trials with a value, the first choice first."""


def standing(study: Study) -> Standing:
    """Return where a study stands, by its files."""
    place, settings = shlex.quote(str(study.folder)), study.settings
    ranked = [trial for trial in study.best() if trial.objective is not None]
    work = Advice("start workers, as many as there are cores", f"hmx study work {place}")
    refused = study.trials[-MOST_REFUSED:]
    if len(refused) == MOST_REFUSED and all(trial.refused for trial in refused):
        return _failed(study, f"the last {MOST_REFUSED} trials were refused: {refused[-1].refused}")
    if not study.trials:
        return Standing("new", "no trial has begun", work)
    if not search_is_finished(study):
        ended = sum(not trial.open for trial in study.accepted)
        reason = f"{ended:,} of {counted(settings.trials, 'trial')} have paused or ended"
        reason += "; the best of them continue" if ended == settings.trials else ""
        return Standing("searching", reason, work, caution=_caution(study), ranked=ranked)
    if not study.accepted:
        return _failed(study, f"all {counted(len(study.trials), 'trial')} were refused: {study.trials[-1].refused}")
    if not any(len(trial.rungs) > study.last_rung for trial in ranked):
        return _failed(study, _without_value(study, study.accepted, "trial"))
    if any(one.open for one in study.confirmations) or any(confirmations_due(study)):
        count = max(len(study.confirmations), min(settings.confirm_top, len(study.ranked(study.last_rung))))
        reason = f"{len(study.confirmed):,} of {counted(count, 'confirmation')} on fresh seeds have ended"
        return Standing("confirming", reason, work, caution=_caution(study), ranked=ranked)
    known = [one for one in study.confirmations if one.objective is not None]
    if study.confirmations and not known:
        return _failed(study, _without_value(study, study.confirmations, "confirmation"))
    known.sort(key=lambda one: settings.objective.order(one.objective))
    chosen = [study.by_number[one.trial] for one in known]
    ranked = [*chosen, *(trial for trial in ranked if trial not in chosen)]
    first = f"trial {ranked[0].number}"
    use = f"hmx study best {place} --config best.toml"
    if chosen:
        alone = len(chosen) == 1 < len(study.accepted)
        what = "leads the search, and no other trial ran on fresh seeds" if alone else "is the best on fresh seeds"
        reason, step = f"{first} {what}", Advice(f"use the best configuration, {first}", use)
    elif len(study.accepted) == 1:
        reason, step = f"{first} is the only one", Advice(f"use its configuration, {first}", use)
    else:
        reason = f"{first} leads the search; nothing is confirmed on fresh seeds"
        more = f"--confirm {DEFAULT_CONFIRM}"
        confirm = f"hmx study add {place} {more} && hmx study work {place}"
        step = Advice(f"{first}, the first of the search, has not run on fresh seeds", confirm)
    confirmed, caution = bool(chosen), _caution(study)
    return Standing("finished", reason, step, ranked[0].number, confirmed, caution, ranked)


def _caution(study: Study) -> str:
    """Describe promotions from a rung whose results are all equal; empty without any."""
    for rung in range(study.last_rung):
        known = [trial.rungs[rung].objective for trial in study.accepted if len(trial.rungs) > rung]
        values = [value for value in known if value is not None]
        if len(values) > 1 == len({*values}):
            return (
                f"all {len(values):,} results at rung {rung} are equal, so the options did not decide which trials "
                "continued; a longer first rung (--steps) or --rungs 1 tells them apart"
            )
    return ""


def _without_value(study: Study, runs: Sequence[Trial | Confirmation], what: str) -> str:
    """Return why none of these runs has a value at its end, by those that came furthest."""
    furthest = max(len(run.rungs) for run in runs)
    results = [run.result for run in runs if run.result and len(run.rungs) == furthest]
    failed = Counter(result.failed for result in results if result.failed)
    if failed.total() == len(results):
        (why, count), *_ = failed.most_common(1)
        return f"no {what} has a value of the objective: {count:,} of {len(runs):,} failed: {why}"
    last = next(result for result in results if not result.failed)
    known = sum(value is not None for value in last.per_seed)
    some = f"; {known} of {len(last.per_seed)} seeds have one" if known else ""
    objective, steps = study.settings.objective, last.env_steps // study.base.env.num_envs
    missing = f"{objective.metric} did not reach the threshold" if objective.threshold is not None else (
        "no episode ended" if "mean_episode" in objective.metric else f"{objective.metric} had no finite value"
    )  # fmt: skip
    where = f"in {counted(steps, 'step')} per environment, at rung {last.rung}{some}"
    return f"no {what} has a value of the objective: {missing} {where}"


def _failed(study: Study, reason: str) -> Standing:
    """Return the state of a study that has nothing, and the step that finds out more or cures it."""
    place = shlex.quote(str(study.folder))
    runs = [run for run in study.runs if run.failed]
    traced = next((run.folder for run in runs if (run.folder / METRICS).exists()), None)
    if not study.accepted or not any(run.result for run in study.runs):
        sizes = f"hmx compute-config --config {place}/{CONFIGS}/{next(iter(study.configs))}.toml"
        step = Advice("see which sizes the configuration has, and make a study whose values fit", sizes)
    elif traced:
        step = Advice("see what went wrong in one of the runs", f"hmx doctor {shlex.quote(str(traced))}")
    elif runs:
        step = Advice("remove the cause, and make the study again", _longer(study))
    else:
        step = Advice("make a study that trains longer before its trials compete", _longer(study))
    return Standing("failed", reason, step)


def _longer(study: Study) -> str:
    """Return the command that makes the study again: all trials train to the end, and for long enough."""
    settings, base, objective = study.settings, study.base, study.settings.objective
    number = 2
    while (folder := study.folder.with_name(f"{study.folder.name}-{number}")).exists():
        number += 1
    steps = max(base.run.total_steps * (2 if len(settings.rungs) == 1 else 1), step_limit(base.env) * base.env.num_envs)
    words = ["hmx", "study", "new", str(folder)]
    for name in study.configs:
        words += ["--config", str(study.folder / CONFIGS / f"{name}.toml")]
    for one in settings.space:
        words += ["--space", f"{one.key}={text_of(one)}"] if one.key != CONFIG_KEY else []
    if settings.sampler != "grid":
        words += ["--trials", f"{settings.trials}"]
    words += ["--sampler", settings.sampler, "--rungs", "1", "--steps", f"{steps}"]
    if objective.metric != Objective.metric:
        words += ["--metric", objective.metric]
        words += ["--maximize" if objective.maximize else "--minimize"] if objective.metric != EVALUATION else []
    words += ["--measure", "auc"] if objective.measure != Objective.measure else []
    return shlex.join(words)
