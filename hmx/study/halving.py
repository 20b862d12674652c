"""Successive halving: which trials continue to the next rung.

A worker promotes a trial as soon as it is among the best 1/eta of the results at its rung (ASHA; Li et al. 2020,
arXiv:1810.05934). In a synchronous study it waits until all results of the rung are known (Jamieson and Talwalkar 2016,
arXiv:1502.07943), so the promotions do not depend on when trials finish.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hmx.study.records import Promotion, Study, Trial, ranges_of, rank


class Bracket(NamedTuple):
    """Trials that compete with each other."""

    trials: Sequence[Trial]
    complete: bool  # whether no trial will join them


def brackets(study: Study, complete: int) -> list[Bracket]:
    """Return the brackets of a study: one, or in a synchronous study one for each revision of its settings.

    Args:
        study: the study.
        complete: number of revisions whose trials are all proposed.
    """
    if not study.settings.synchronous:
        return [Bracket(study.accepted, complete == len(study.history))]
    return [
        Bracket([trial for trial in study.accepted if trial.revision == settings.revision], number < complete)
        for number, settings in enumerate(study.history)
    ]


def promotions(study: Study, complete: int) -> Iterator[tuple[Trial, Promotion]]:
    """Yield the promotions that are due, those to the highest rung first; arguments as of `brackets`."""
    for rung in reversed(range(study.last_rung)):
        for bracket in brackets(study, complete):
            for trial in due(study, bracket, rung):
                known = [other.number for other in bracket.trials if len(other.rungs) > rung]
                yield trial, Promotion(rung=rung + 1, seen=ranges_of(known))


def due(study: Study, bracket: Bracket, rung: int) -> list[Trial]:
    """Return the trials of a bracket to promote from a rung."""
    closed = _is_closed(study, bracket, rung)
    if study.settings.synchronous and not closed:
        return []
    results = [trial for trial in bracket.trials if len(trial.rungs) > rung]
    best = promotable(study, results, rung, at_least=1 if closed else 0)
    return [trial for trial in best if trial.promoted <= rung]


def promotable(study: Study, results: Sequence[Trial], rung: int, at_least: int) -> list[Trial]:
    """Return the best 1/eta of the results at a rung; trials that failed or have no objective never continue."""
    quota = max(len(results) // study.settings.eta, at_least)
    best = rank(results, rung, study.settings.objective)[:quota]
    return [trial for trial in best if trial.rungs[rung].objective is not None and not trial.rungs[rung].failed]


def _is_closed(study: Study, bracket: Bracket, rung: int) -> bool:
    """Return whether no more results will come at a rung."""
    if rung == 0:
        return bracket.complete and all(trial.rungs for trial in bracket.trials)
    arrived = all(len(trial.rungs) > rung for trial in bracket.trials if trial.promoted >= rung)
    return arrived and _is_closed(study, bracket, rung - 1) and not due(study, bracket, rung - 1)
