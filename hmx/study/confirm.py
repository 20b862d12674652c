"""The best trials run again on fresh seeds.

The best of many noisy results is partly luck, so its value is too high. Seeds that no decision has seen have no such
bias (Eimer et al. 2023, arXiv:2306.01324).
"""

from __future__ import annotations

from collections.abc import Iterator

from hmx.study.halving import promotions
from hmx.study.records import Confirmation, Study, ranges_of
from hmx.study.samplers import complete_revisions


def search_is_finished(study: Study) -> bool:
    """Return whether all trials are proposed and none has anything left to train."""
    complete = complete_revisions(study)
    searching = any(trial.open for trial in study.trials) or any(promotions(study, complete))
    return complete == len(study.history) and not searching


def confirmations_due(study: Study) -> Iterator[Confirmation]:
    """Yield the confirmations that are not chosen yet, once the search is finished."""
    settings = study.settings
    if not settings.confirm_top or not settings.confirm_seeds or not search_is_finished(study):
        return
    chosen = {confirmation.trial for confirmation in study.confirmations}
    finished = study.ranked(study.last_rung)
    good = [trial for trial in finished if trial.objective is not None]
    for trial in good[: settings.confirm_top]:
        if trial.number not in chosen:
            yield Confirmation(
                trial=trial.number,
                seeds=fresh_seeds(study),
                seen=ranges_of([other.number for other in finished]),
            )


def fresh_seeds(study: Study) -> tuple[int, ...]:
    """Return the seeds of confirmations: those after the seeds of the trials."""
    run = study.base.run
    first = run.seed + run.num_seeds
    return tuple(range(first, first + study.settings.confirm_seeds))
