"""Successive halving: which trials continue to the next rung.

A worker promotes a trial as soon as it is among the best 1/eta of the results at its rung (ASHA; Li et al. 2020,
arXiv:1810.05934). In a synchronous study it waits until all results of the rung are known (Jamieson and Talwalkar 2016,
arXiv:1502.07943), so the promotions do not depend on when trials finish.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from hmx.study.records import Promotion, Study, StudySettings, Trial, ranges_of, rank


def update_at(num_updates: int, share: float) -> int:
    """Return the update at which a run reaches a share of its updates."""
    return max(1, math.ceil(share * num_updates - 1e-9))


def expected_at(settings: StudySettings, rung: int) -> int:
    """Return the number of trials that are expected to reach a rung: one of `eta` continues."""
    kept: int = settings.trials // settings.eta**rung
    return max(kept, min(settings.trials, 1))


def brackets(study: Study, complete: int) -> list[tuple[Sequence[Trial], bool]]:
    """Return the brackets of a study: one, or in a synchronous study one for each revision of its settings.

    A bracket is the trials that compete with each other, and whether no trial will join them.

    Args:
        study: the study.
        complete: number of revisions whose trials are all proposed.
    """
    if not study.settings.synchronous:
        return [(study.accepted, complete == len(study.history))]
    return [
        ([trial for trial in study.accepted if trial.revision == settings.revision], number < complete)
        for number, settings in enumerate(study.history)
    ]


def promotions(study: Study, complete: int) -> Iterator[tuple[Trial, Promotion]]:
    """Yield the promotions that are due, those to the highest rung first; arguments as of `brackets`."""
    for rung in reversed(range(study.last_rung)):
        for trials, closed in brackets(study, complete):
            for trial in due(study, trials, closed, rung):
                known = [other.number for other in trials if len(other.rungs) > rung]
                yield trial, Promotion(rung=rung + 1, seen=ranges_of(known))


def due(study: Study, trials: Sequence[Trial], closed: bool, rung: int) -> list[Trial]:
    """Return the trials of a bracket to promote from a rung; it is `closed` if no trial will join it."""
    known = _is_known(study, trials, closed, rung)
    if study.settings.synchronous and not known:
        return []
    results = [trial for trial in trials if len(trial.rungs) > rung]
    best = promotable(study, results, rung, at_least=1 if known else 0)
    return [trial for trial in best if trial.promoted <= rung]


def promotable(study: Study, results: Sequence[Trial], rung: int, at_least: int) -> list[Trial]:
    """Return the best 1/eta of the results at a rung; trials that failed or have no objective never continue."""
    quota = max(len(results) // study.settings.eta, at_least)
    best = rank(results, rung, study.settings.objective)[:quota]
    return [trial for trial in best if trial.rungs[rung].objective is not None and not trial.rungs[rung].failed]


def _is_known(study: Study, trials: Sequence[Trial], closed: bool, rung: int) -> bool:
    """Return whether no more results will come at a rung."""
    if rung == 0:
        return closed and all(trial.rungs for trial in trials)
    arrived = all(len(trial.rungs) > rung for trial in trials if trial.promoted >= rung)
    return arrived and _is_known(study, trials, closed, rung - 1) and not due(study, trials, closed, rung - 1)
