"""Proposals: exact numbers of trials, and values that depend only on what is recorded."""

from __future__ import annotations

import dataclasses

import pytest

from hmx.study.samplers import complete_revisions, known_before, next_turn, propose, quasi_random
from hmx.study.space import parse_space


def test_budget_counts_accepted_trials_only(made) -> None:
    trials = [made.trial(1), made.trial(2, refused="too large"), made.trial(3)]
    turn = next_turn(made.study(trials, trials=3))
    assert turn is not None
    assert turn.number == 4
    assert next_turn(made.study(trials, trials=2)) is None


def test_deleted_trial_is_proposed_again(made) -> None:
    turn = next_turn(made.study([made.trial(1), made.trial(3)], trials=9))
    assert turn is not None
    assert turn.number == 2


def test_trial_belongs_to_the_first_revision_whose_budget_includes_it(made) -> None:
    """So a worker that has not noticed an extension makes the same file as one that has."""
    trials = [made.trial(1), made.trial(2, refused="x")]
    study = made.study(trials, {"trials": 4}, trials=2)
    assert next_turn(study).revision == 1
    assert complete_revisions(study) == 0
    study = dataclasses.replace(study, trials=(*trials, made.trial(3)))
    assert next_turn(study).revision == 2
    assert complete_revisions(study) == 1


@pytest.mark.parametrize("sampler", ["random", "quasi-random"])
def test_proposal_depends_on_seed_and_number_only(made, sampler) -> None:
    study = made.study(sampler=sampler)
    turns = [next_turn(dataclasses.replace(study, trials=tuple(made.trial(i + 1) for i in range(n)))) for n in range(3)]
    values = [propose(study, turn, ()) for turn in turns]
    assert len({str(value) for value in values}) == 3
    with_results = made.study([made.trial(1, [5.0]), made.trial(2, [6.0])], sampler=sampler)
    assert [propose(with_results, turn, ()) for turn in turns] == values
    assert propose(made.study(sampler=sampler, sampler_seed=1), turns[0], ()) != values[0]


def test_extension_of_the_space_keeps_earlier_proposals(made) -> None:
    study = made.study([], {"space": parse_space(["algo.gamma=0.1|0.2"]), "trials": 4}, trials=2, sampler="random")
    first = propose(study, next_turn(study), ())
    assert first.keys() == {"algo.gamma", "ppo.update_epochs"}
    study = dataclasses.replace(study, trials=(made.trial(1), made.trial(2)))
    assert propose(study, next_turn(study), ())["algo.gamma"] in (0.1, 0.2)


def test_quasi_random_points_fill_every_cell_of_a_grid() -> None:
    points = [quasi_random(seed=3, number=n, dimensions=2) for n in range(1, 129)]
    cells = {(int(x * 6), int(y * 6)) for x, y in points}
    assert len(cells) == 36  # of random points, one of 36 cells is empty more often than not
    assert all(0 <= u < 1 for point in points for u in point)


def test_grid_is_tried_point_by_point_and_grows_at_its_end(made) -> None:
    space = parse_space(["algo.gamma=0.9|0.99"])
    larger = parse_space(["algo.gamma=0.5|0.9|0.99"])
    study = made.study([], {"space": larger, "trials": 3}, space=space, trials=2, sampler="grid")
    values = []
    while (turn := next_turn(study)) is not None:
        values.append(propose(study, turn, ())["algo.gamma"])
        refused = "x" if turn.number == 1 else ""  # a refused point is not replaced
        trial = made.trial(turn.number, refused=refused, revision=turn.revision)
        study = dataclasses.replace(study, trials=(*study.trials, trial))
    assert values == [0.9, 0.99, 0.5]
    assert [trial.revision for trial in study.trials] == [1, 1, 2]


def test_grid_points_that_python_takes_for_equal_are_both_tried(made) -> None:
    study = made.study([], space=parse_space(["env.my.x=1|true"]), trials=2, sampler="grid")
    later = dataclasses.replace(study, trials=(made.trial(1),))
    assert [str(propose(found, next_turn(found), ())["env.my.x"]) for found in (study, later)] == ["1", "True"]


def test_synchronous_batch_waits_for_the_first_results_of_earlier_batches(made) -> None:
    trials = [made.trial(1, [1.0]), made.trial(2), made.trial(3), made.trial(4)]
    study = made.study(trials, sampler="tpe", synchronous=True, batch=2)
    assert known_before(study, next_turn(study)) is None
    trials[1] = made.trial(2, [1.0, 2.0], promoted=1)
    trials[2] = made.trial(3, refused="x")
    trials[3] = made.trial(4, [2.0])
    study = made.study(trials, sampler="tpe", synchronous=True, batch=2)
    assert known_before(study, next_turn(study)) == ("1-2,4",)
    inside = dataclasses.replace(study, trials=study.trials[:3])  # trial 4 is of the batch 3-4
    assert known_before(inside, next_turn(inside)) == ("1-2",)


def test_other_studies_see_all_results_there_are(made) -> None:
    trials = [made.trial(1, [1.0]), made.trial(2, [1.0, 2.0], promoted=1), made.trial(3)]
    study = made.study(trials, sampler="tpe", rungs=(0.5, 1.0))
    assert known_before(study, next_turn(study)) == ("1-2", "2")
