"""Which trials continue: the best third at a rung, at once or when the rung is complete."""

from __future__ import annotations

import dataclasses

from hmx.study.confirm import confirmations_due, search_is_finished
from hmx.study.halving import promotions
from hmx.study.samplers import complete_revisions

RUNGS = (1 / 9, 1 / 3, 1.0)


def promoted(study) -> list[tuple[int, int, str]]:
    """Return trial, rung and known results of every promotion that is due."""
    due = promotions(study, complete_revisions(study))
    return [(trial.number, promotion.rung, promotion.seen) for trial, promotion in due]


def test_trial_is_promoted_as_soon_as_it_is_in_the_best_third(made) -> None:
    trials = [made.trial(1, [5.0]), made.trial(2, [7.0]), made.trial(3), made.trial(4)]
    assert promoted(made.study(trials, rungs=RUNGS)) == []
    trials[2] = made.trial(3, [6.0])
    assert promoted(made.study(trials, rungs=RUNGS)) == [(2, 1, "1-3")]


def test_promoted_trial_is_not_promoted_again(made) -> None:
    trials = [made.trial(1, [5.0]), made.trial(2, [7.0], promoted=1), made.trial(3, [6.0])]
    assert promoted(made.study(trials, rungs=RUNGS)) == []


def test_higher_rungs_come_first(made) -> None:
    trials = [made.trial(n, [float(n), float(n)], promoted=1) for n in (1, 2, 3)]
    trials += [made.trial(n, [float(n)]) for n in (4, 5, 6)]
    assert promoted(made.study(trials, rungs=RUNGS)) == [(3, 2, "1-3"), (6, 1, "1-6"), (5, 1, "1-6")]


def test_synchronous_study_waits_for_all_results_of_a_rung(made) -> None:
    trials = [made.trial(n, [float(n)]) for n in range(1, 9)]
    waiting = made.study([*trials, made.trial(9)], rungs=RUNGS, synchronous=True)
    assert promoted(waiting) == []
    assert promoted(made.study(trials, rungs=RUNGS, synchronous=True)) == []  # the ninth is not proposed yet
    complete = made.study([*trials, made.trial(9, [0.0])], rungs=RUNGS, synchronous=True)
    assert promoted(complete) == [(8, 1, "1-9"), (7, 1, "1-9"), (6, 1, "1-9")]


def test_synchronous_promotions_do_not_depend_on_those_already_written(made) -> None:
    trials = [made.trial(n, [float(n)], promoted=int(n in (7, 8))) for n in range(1, 10)]
    assert promoted(made.study(trials, rungs=RUNGS, synchronous=True)) == [(9, 1, "1-9")]


def test_synchronous_rung_is_complete_when_all_promoted_trials_arrived(made) -> None:
    trials = [made.trial(n, [float(n)]) for n in range(1, 7)]
    arrived = [made.trial(n, [float(n), float(n)], promoted=1) for n in (7, 8)]
    waiting = made.study([*trials, *arrived, made.trial(9, [9.0], promoted=1)], rungs=RUNGS, synchronous=True)
    assert promoted(waiting) == []
    complete = made.study([*trials, *arrived, made.trial(9, [9.0, 1.0], promoted=1)], rungs=RUNGS, synchronous=True)
    assert promoted(complete) == [(8, 2, "7-9")]


def test_each_revision_of_a_synchronous_study_has_its_own_rungs(made) -> None:
    old = [made.trial(n, [10.0 + n], promoted=int(n == 3)) for n in (1, 2, 3)]
    new = [made.trial(n, [float(n)], revision=2) for n in (4, 5, 6)]
    study = made.study([*old, *new], {"trials": 6}, trials=3, rungs=RUNGS, synchronous=True)
    assert promoted(study) == [(6, 1, "4-6")]


def test_study_with_few_trials_promotes_one(made) -> None:
    trials = [made.trial(1, [1.0]), made.trial(2, [2.0])]
    assert promoted(made.study(trials, trials=2, rungs=RUNGS)) == [(2, 1, "1-2")]
    assert promoted(made.study(trials, trials=3, rungs=RUNGS)) == []  # a third result may be better


def test_trial_without_an_objective_is_never_promoted(made) -> None:
    trials = [made.trial(n, [None]) for n in (1, 2, 3)]
    assert promoted(made.study(trials, trials=3, rungs=RUNGS)) == []


def test_lower_objective_is_better_where_the_objective_says_so(made) -> None:
    trials = [made.trial(n, [float(n)]) for n in (1, 2, 3)]
    study = made.study(trials, trials=3, rungs=RUNGS)
    objective = dataclasses.replace(study.settings.objective, maximize=False)
    assert promoted(made.study(trials, trials=3, rungs=RUNGS, objective=objective)) == [(1, 1, "1-3")]


def test_best_trials_are_confirmed_once_the_search_is_finished(made) -> None:
    trials = [made.trial(1, [1.0]), made.trial(2, [3.0]), made.trial(3, [None]), made.trial(4, refused="too large")]
    unfinished = made.study(trials, trials=4, confirm_top=2, confirm_seeds=3)
    assert not search_is_finished(unfinished)
    assert list(confirmations_due(unfinished)) == []
    study = made.study(trials, trials=3, confirm_top=3, confirm_seeds=3)
    assert search_is_finished(study)
    assert [(one.trial, one.seeds, one.seen) for one in confirmations_due(study)] == [
        (2, (1, 2, 3), "1-3"), (1, (1, 2, 3), "1-3"),
    ]  # fmt: skip


def test_running_or_promotable_trial_keeps_the_search_unfinished(made) -> None:
    assert not search_is_finished(made.study([made.trial(1, [1.0]), made.trial(2)], trials=2))
    assert not search_is_finished(made.study([made.trial(1, [1.0])], trials=1, rungs=RUNGS))
