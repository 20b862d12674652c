"""`hmx study report`: the best configurations of a study, how sure that is, and what mattered."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path

from hmx.config.fields import get
from hmx.errors import HmxError
from hmx.records.plain import JsonValue, plain
from hmx.reports.compare.document import ALL_PAIRS
from hmx.reports.compare.findings import CompareFindings
from hmx.reports.compare.job import compare
from hmx.reports.compare.request import CompareRequest
from hmx.study.folder import read_study
from hmx.study.records import CONFIG_KEY, Confirmation, Study, Trial
from hmx.study.report.advice import advice
from hmx.study.report.finalists import finalists
from hmx.study.report.findings import StudyFindings, TrialFacts
from hmx.study.report.options import importance
from hmx.study.state import standing
from hmx.study.status import cpu_seconds_of

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,30}")


def study_report(folder: str | Path) -> StudyFindings:
    """Report on a study as its files are now; only reads.

    Raises:
        HmxError: as `read_study`.
    """
    study = read_study(folder)
    trials = [_facts(study, trial) for trial in study.accepted]
    higher = study.settings.objective.higher_is_better
    now = standing(study)
    best, pairs = finalists(study, now)
    findings = StudyFindings(
        name=study.folder.resolve().name,
        folder=str(study.folder),
        task=study.base.env.id,
        settings=study.settings,
        standing=now,
        unfinished=sum(trial.open for trial in study.accepted),
        refused=len(study.trials) - len(study.accepted),
        trials=tuple(with_front(trials, higher)),
        finalists=tuple(best),
        pairs=tuple(pairs),
        importance=tuple(importance(study.settings.space, trials, higher)),
        advice=(),
        comparison=None,
        warnings=(),
    )
    folders = _compared(study, findings)
    comparison, warnings = _comparison(study, folders) if len(folders) > 1 else (None, ())
    findings = dataclasses.replace(findings, comparison=comparison, warnings=warnings)
    return dataclasses.replace(findings, advice=tuple(advice(findings)))


def _facts(study: Study, trial: Trial) -> TrialFacts:
    return TrialFacts(
        trial=trial.number,
        label=trial.label,
        values={one.key: _value(study, trial, one.key) for one in study.settings.space},
        rungs=tuple(result.objective for result in trial.rungs),
        env_steps=trial.rungs[-1].env_steps if trial.rungs else 0,
        cpu_seconds=cpu_seconds_of(trial.folder),
        failed=trial.failed,
    )


def _value(study: Study, trial: Trial, key: str) -> JsonValue:
    """Return the value of an option; before the study varied it, it had the value of the configuration."""
    if key in trial.values or key == CONFIG_KEY:
        return trial.values.get(key)
    return plain(get(study.configs.get(trial.label, study.base), key))


def with_front(trials: Sequence[TrialFacts], higher: bool) -> list[TrialFacts]:
    """Mark the trials that are better than every trial that took less CPU time."""
    sign = -1.0 if higher else 1.0
    known = [(t.cpu_seconds, sign * t.objective, t.trial) for t in trials if t.cpu_seconds and t.objective is not None]
    front: set[int] = set()
    least = float("inf")
    for _, loss, number in sorted(known):
        if loss < least:
            front.add(number)
            least = loss
    return [dataclasses.replace(trial, front=trial.trial in front) for trial in trials]


def _compared(study: Study, findings: StudyFindings) -> dict[str, Path]:
    """Return the runs to compare by name: all configurations of a list, otherwise the finalists."""
    if findings.is_list:
        highest = max((len(trial.rungs) for trial in study.accepted), default=0)
        chosen = [trial for trial in study.best() if len(trial.rungs) == highest > 0][:ALL_PAIRS]
        chosen.sort(key=lambda trial: trial.number)
        return {_name(trial): trial.folder for trial in chosen}
    numbers = [one.trial for one in findings.finalists]
    runs: dict[int, Trial | Confirmation] = {trial.number: trial for trial in study.trials}
    runs |= {done.trial: done for done in study.confirmations if findings.confirmed}
    return {f"trial-{number}": runs[number].folder for number in numbers}


def _name(trial: Trial) -> str:
    return f"{trial.label}-{trial.number}" if _NAME.fullmatch(trial.label) else f"trial-{trial.number}"


def _comparison(study: Study, folders: dict[str, Path]) -> tuple[CompareFindings | None, tuple[str, ...]]:
    objective = study.settings.objective
    request = CompareRequest(
        sides=tuple(f"{name}={folder}" for name, folder in folders.items()),
        metric=objective.metric,
        thresholds=(("", objective.threshold),) if objective.threshold is not None else (),
        better="up" if objective.maximize else "down",
    )
    try:
        return compare(request), ()
    except HmxError as problem:  # the records of the study remain
        return None, (f"the runs cannot be compared: {problem.message}",)
