"""Proposals: the values of the next trial, from the settings and the results that are known.

A proposal depends only on what its file records, so `hmx study verify` can ask again and must get the same values.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

from hmx.records.plain import JsonValue
from hmx.study import optuna_samplers
from hmx.study.records import Parameter, Study, StudySettings, Trial, ranges_of
from hmx.study.space import grid, value_at

Values = dict[str, JsonValue]


def next_turn(study: Study) -> Trial | None:
    """Return the first trial that is missing, without values; None if the budget is used up.

    It depends only on the trials before it, whose files never change. So all workers get the same trial, and no number
    of workers exceeds the budget.
    """
    numbers = [trial.number for trial in study.trials]
    number = next((wanted for wanted, there in enumerate(numbers, 1) if wanted != there), len(numbers) + 1)
    return turn_of(study, number)


def turn_of(study: Study, number: int) -> Trial | None:
    """Return a trial before it has values, by the trials before it; None if it exceeds the budget."""
    trials = [trial for trial in study.trials if trial.number < number]
    accepted = sum(not trial.refused for trial in trials)
    for settings in study.history:
        used = len(trials) if settings.sampler == "grid" else accepted  # a refused point of a grid is not replaced
        if used < settings.trials:
            return Trial(number=number, sampler=settings.sampler, revision=settings.revision)
    return None


def complete_revisions(study: Study) -> int:
    """Return the number of revisions whose trials are all proposed."""
    turn = next_turn(study)
    return len(study.history) if turn is None else turn.revision - 1


def known_before(study: Study, turn: Trial) -> tuple[str, ...] | None:
    """Return the results that the sampler sees, as in `Trial.seen`; None if it has to wait for some.

    In a synchronous study trials are proposed in batches, from the first results of all earlier batches.
    """
    settings = study.history[turn.revision - 1]
    if settings.sampler not in optuna_samplers.NAMES:
        return ()
    if not settings.synchronous:
        known = [
            [t.number for t in study.trials[: turn.number - 1] if len(t.rungs) > rung]
            for rung in range(len(settings.rungs))
        ]
        return tuple(ranges_of(numbers) for numbers in known)
    first = turn.number - (turn.number - 1) % settings.batch
    earlier = [trial for trial in study.trials if trial.number < first and not trial.refused]
    if any(not trial.rungs for trial in earlier):
        return None
    return (ranges_of([trial.number for trial in earlier]),)


def propose(study: Study, turn: Trial, seen: Sequence[str]) -> Values:
    """Return the values of a trial.

    Args:
        study: the study; later trials do not matter.
        turn: the trial to propose.
        seen: the results that the sampler sees, as in `Trial.seen`.
    """
    settings = study.history[turn.revision - 1]
    if settings.sampler == "grid":
        return grid_points(study.history)[sum(trial.number < turn.number for trial in study.trials)]
    if settings.sampler in optuna_samplers.NAMES:
        return optuna_samplers.propose(study, settings, turn.number, seen)
    if settings.sampler == "random":
        places = _uniform(f"{settings.sampler_seed}/{turn.number}", len(settings.space))
    else:
        places = quasi_random(settings.sampler_seed, turn.number, len(settings.space))
    return _values(settings.space, places)


def grid_points(history: Sequence[StudySettings]) -> list[Values]:
    """Return all grid points; those that a later revision adds come last."""
    points = [point for settings in history for point in grid(settings.space)]
    return list({json.dumps(point, sort_keys=True): point for point in points}.values())


def quasi_random(seed: int, number: int, dimensions: int) -> list[float]:
    """Return a point of an additive recurrence in [0, 1), which fills the space more evenly than random points.

    The steps are the powers of 1 / phi, where phi is the positive root of x^(d + 1) = x + 1 (Roberts 2018, "The
    Unreasonable Effectiveness of Quasirandom Sequences"); the seed shifts all points.
    """
    phi = 2.0
    for _ in range(64):
        phi = (1.0 + phi) ** (1.0 / (dimensions + 1))
    shift = _uniform(f"{seed}/shift", dimensions)
    return [(start + number * phi ** -(axis + 1)) % 1.0 for axis, start in enumerate(shift)]


def _uniform(seed: str, count: int) -> list[float]:
    generator = random.Random(seed)
    return [generator.random() for _ in range(count)]


def _values(space: Sequence[Parameter], places: Sequence[float]) -> Values:
    return {parameter.key: value_at(parameter, u) for parameter, u in zip(space, places, strict=True)}
