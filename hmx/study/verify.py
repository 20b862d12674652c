"""`hmx study verify`: make every decision of a study again from what it recorded, and every result from the metrics."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

from hmx.errors import HmxError
from hmx.records.paths import RunPaths
from hmx.records.plain import JsonResult, ShortRepr
from hmx.study.folder import read_study
from hmx.study.halving import promotable
from hmx.study.measure import measure
from hmx.study.records import Promotion, RungResult, Study, Trial, numbers_of
from hmx.study.samplers import propose, turn_of

Difference = tuple[str, str]
"""Where a study differs from its record, and how."""


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class StudyVerification(ShortRepr, JsonResult):
    """Whether a study matches its record."""

    study: Path
    proposals: int  # asked again
    promotions: int
    results: int  # computed again
    differences: tuple[Difference, ...]


def verify_study(folder: str | Path) -> StudyVerification:
    """Make every decision and result of a study again; differences are the result, not an error.

    Raises:
        HmxError: it is not a study, or one of its files is damaged (exit code 3).
    """
    study = read_study(folder)
    differences: list[Difference] = []
    for trial in study.trials:
        differences += _check_proposal(study, trial)
        for promotion in trial.promotions:
            differences += _check_promotion(study, trial, promotion)
        for result in trial.rungs:
            differences += _check_result(study, trial.paths, result, study.base.run.num_seeds)
    for one in study.confirmations:
        if one.result is not None:
            differences += _check_result(study, one.paths, one.result, len(one.seeds))
    return StudyVerification(
        study=study.folder,
        proposals=len(study.trials),
        promotions=sum(len(trial.promotions) for trial in study.trials),
        results=sum(len(trial.rungs) for trial in study.trials) + sum(bool(one.result) for one in study.confirmations),
        differences=tuple(differences),
    )


def _check_proposal(study: Study, trial: Trial) -> Iterator[Difference]:
    where, turn = f"trial {trial.number}", turn_of(study, trial.number)
    if turn is None or turn.revision != trial.revision:
        yield where, "exceeds the budget of its settings"
        return
    try:
        values = propose(study, turn, trial.seen)
    except (IndexError, ValueError, KeyError):
        yield where, "has seen results that do not exist"
        return
    if values != trial.values:
        yield where, f"the sampler proposes {values} instead of {trial.values}"


def _check_promotion(study: Study, trial: Trial, promotion: Promotion) -> Iterator[Difference]:
    where, below = f"trial {trial.number}, promotion to rung {promotion.rung}", promotion.rung - 1
    seen = set(numbers_of(promotion.seen))
    results = [other for other in study.trials if other.number in seen and len(other.rungs) > below]
    if len(results) < len(seen):
        yield where, "has seen results that do not exist"
    elif trial not in promotable(study, results, below, at_least=1):
        yield where, f"it is not among the best of the {len(results)} results that were known"


def _check_result(study: Study, paths: RunPaths, result: RungResult, num_seeds: int) -> Iterator[Difference]:
    objective = study.settings.objective
    if result.failed:
        return
    where = f"{paths.folder.parent.name}/{paths.name}, rung {result.rung}"
    try:
        again = measure(paths, objective, result.rung, result.update, result.env_steps, num_seeds)
    except HmxError as problem:
        yield where, problem.message
        return
    if again != result:
        yield where, f"its metrics give {again.objective} instead of {result.objective}"
