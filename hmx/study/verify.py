"""`hmx study verify`: make every decision and result of a study again from its files, and verify its runs."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path

from hmx.config.fields import get
from hmx.errors import HmxError
from hmx.records.frozen import read_config
from hmx.records.paths import RunPaths
from hmx.records.plain import JsonResult, ShortRepr, plain
from hmx.records.verify import verify
from hmx.study.folder import read_study
from hmx.study.halving import promotable
from hmx.study.measure import measure
from hmx.study.records import CONFIG_KEY, Confirmation, Promotion, RungResult, Study, Trial, numbers_of
from hmx.study.samplers import propose, turn_of

_SHOWN = 3  # damages of one run

Difference = tuple[str, str]
"""Where a study differs from its record, and how."""


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class StudyVerification(ShortRepr, JsonResult):
    """Whether a study matches its record."""

    study: Path
    proposals: int  # asked again
    promotions: int
    results: int  # computed again
    runs: int  # verified as by `hmx runs verify`
    differences: tuple[Difference, ...]


def verify_study(folder: str | Path) -> StudyVerification:
    """Make every decision and result of a study again; differences are the result, not an error.

    Raises:
        HmxError: it is not a study, or one of its files is damaged (exit code 3).
    """
    study = read_study(folder)
    differences: list[Difference] = []
    for run in study.runs:
        if isinstance(run, Trial):
            differences += _check_proposal(study, run)
            for promotion in run.promotions:
                differences += _check_promotion(study, run, promotion)
        for result in run.rungs:
            differences += _check_result(study, run, result)
        if run.rungs:
            differences += _check_run(study, run)
    return StudyVerification(
        study=study.folder,
        proposals=len(study.trials),
        promotions=sum(len(trial.promotions) for trial in study.trials),
        results=sum(len(run.rungs) for run in study.runs),
        runs=sum(bool(run.rungs) for run in study.runs),
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


def _check_result(study: Study, run: Trial | Confirmation, result: RungResult) -> Iterator[Difference]:
    paths, seeds = run.paths, study.seeds_of(run)
    if result.failed:
        return
    where = f"{paths.folder.parent.name}/{paths.name}, rung {result.rung}"
    try:
        again = measure(paths, study.settings.objective, result.rung, result.update, result.env_steps, len(seeds))
    except HmxError as problem:
        yield where, problem.message
        return
    if again != result:
        yield where, f"its metrics give {again.objective} instead of {result.objective}"


def _check_run(study: Study, run: Trial | Confirmation) -> Iterator[Difference]:
    """Find a run that is damaged, such as by records of two workers, or that is of another trial."""
    paths = run.paths
    where = f"{paths.root.name}/{paths.name}"
    if not paths.exists():  # it failed before it began, or its result has no metrics, which is a difference already
        return
    yield from damages(paths, where)
    with contextlib.suppress(HmxError):  # `verify` has named a damaged configuration
        saved = read_config(paths)
        values = study.by_number[run.number].values | {"run.seed": study.seeds_of(run)[0]}
        for key, value in values.items():
            if key != CONFIG_KEY and plain(get(saved, key)) != value:
                yield where, f"the run of another trial: {key} is {plain(get(saved, key))} instead of {value}"


def damages(paths: RunPaths, where: str) -> Iterator[Difference]:
    """Yield what `hmx runs verify` finds in a run that exists; when there is much, the first findings."""
    found = verify(paths).damage
    for damage in found[:_SHOWN]:
        yield f"{where}/{damage.path}", damage.what
    if len(found) > _SHOWN:
        yield where, f"{len(found) - _SHOWN:,} further damages: hmx runs verify {paths.argument}"
