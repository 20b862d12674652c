"""The best trials of a study, in the search and on fresh seeds, and which of them cannot be distinguished."""

from __future__ import annotations

import numpy as np

from hmx.reports.compare.findings import Pair, SeedScore, SideScores
from hmx.reports.compare.request import CompareRequest
from hmx.reports.compare.tasks import pair
from hmx.stats import aggregates as agg
from hmx.stats.estimate import Estimate
from hmx.stats.intervals import Floats
from hmx.study.records import Confirmation, Objective, RungResult, Study, Trial
from hmx.study.report.findings import Finalist
from hmx.study.state import Standing
from hmx.study.status import cpu_seconds_of, over_seeds

UNCONFIRMED = 3  # best trials that are compared while none is confirmed
_SAMPLES = CompareRequest.samples


def finalists(study: Study, now: Standing) -> tuple[list[Finalist], list[Pair]]:
    """Return the confirmed trials, or the first of the search if none is, the best first; none until that is decided.

    The pairs compare the best one with every other, as `hmx compare` does.
    """
    if now.choice is None:
        return [], []
    objective, confirmed = study.settings.objective, study.confirmed
    top = [trial for trial in now.ranked[:UNCONFIRMED] if len(trial.rungs) == len(now.ranked[0].rungs)]
    chosen = [trial for trial in now.ranked if trial.number in confirmed] or top
    results = {trial.number: trial.rungs[-1] for trial in chosen}
    results |= {number: one.result for number, one in confirmed.items() if one.result is not None}
    found = [_finalist(trial, confirmed.get(trial.number), objective) for trial in chosen]
    sides = [_side(one.name, results[one.trial], objective) for one in found]
    request = CompareRequest(better="up" if objective.higher_is_better else "down")
    return found, [pair(sides[0], other, (), request) for other in sides[1:]]


def _finalist(trial: Trial, confirmation: Confirmation | None, objective: Objective) -> Finalist:
    search, result = trial.rungs[-1], confirmation.result if confirmation else None
    return Finalist(
        trial=trial.number,
        name=f"trial {trial.number}" + (f" ({trial.label})" if trial.label else ""),
        folder=str(trial.folder),
        tuned=over_seeds(search, objective),
        tuned_seeds=len(search.per_seed),
        confirmed=None if result is None else over_seeds(result, objective),
        confirmed_seeds=0 if result is None else len(result.per_seed),
        overstated=None if result is None else _overstated(search, result, objective),
        cpu_seconds=cpu_seconds_of(trial.folder),
        confirmed_cpu_seconds=cpu_seconds_of(confirmation.folder) if confirmation else None,
    )


def _overstated(search: RungResult, result: RungResult, objective: Objective) -> Estimate | None:
    """Estimate by how much the search was too optimistic about a trial."""
    if search.objective is None or result.objective is None:
        return None
    whole = None not in (*search.per_seed, *result.per_seed)
    difference = Estimate(search.objective - result.objective)
    if whole and objective.threshold is None:
        difference = agg.iqm_difference([_known(search)], [_known(result)], _SAMPLES)
    return difference if objective.higher_is_better else difference.mirrored()


def _known(result: RungResult) -> Floats:
    return np.array([value for value in result.per_seed if value is not None])


def _side(name: str, result: RungResult, objective: Objective) -> SideScores:
    why = "is unknown" if objective.threshold is None else "never reaches the threshold"
    scores = [SeedScore(run=name, seed=None, value=value, why=why) for value in result.per_seed]
    values = _known(result)
    return SideScores(
        letter=name, end=result.env_steps, seeds=tuple(scores), mean=float(values.mean()) if len(values) else None,
        std=None, iqm=over_seeds(result, objective), areas=(), area=None, evaluated=None, thresholds=(), curves={},
    )  # fmt: skip
