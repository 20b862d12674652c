"""Optuna's samplers: proposals can be asked again from what is recorded, and they learn from results."""

from __future__ import annotations

import dataclasses
import math
import statistics

import pytest

pytest.importorskip("optuna")

from importlib.util import find_spec
from pathlib import Path

from hmx.config.schema import Config
from hmx.study.records import Promotion, RungResult, Sampler, Study, StudySettings, Trial, trial_folder
from hmx.study.samplers import known_before, next_turn, propose
from hmx.study.space import parse_space

NO_TORCH = pytest.mark.skipif(find_spec("torch") is None, reason="the extra has no torch")
SAMPLERS = ["tpe", "cmaes", pytest.param("gp", marks=NO_TORCH)]
SPACE = parse_space(["algo.learning_rate=1e-5..1e-1:log", "ppo.update_epochs=1..8", "net.hidden=[8]|[16,16]"])


def distance(values: dict[str, object]) -> float:
    """Return the orders of magnitude between a learning rate and the best one."""
    return abs(math.log10(float(values["algo.learning_rate"])) + 3)


def search(sampler: Sampler, trials: int, **settings: object) -> Study:
    """Run a study in memory, whose best learning rate is 1e-3; every third trial is refused or without an objective."""
    given = {"space": SPACE, "trials": 200, "sampler": sampler, "rungs": (0.5, 1.0), **settings}
    study = Study(
        folder=Path("s"), history=(StudySettings(**given),), configs={"base": Config()}, trials=(), confirmations=()
    )
    for _ in range(trials):
        turn = next_turn(study)
        assert turn is not None
        seen = known_before(study, turn)
        assert seen is not None
        values = propose(study, turn, seen)
        objective = None if turn.number % 7 == 0 else -distance(values)
        promoted = turn.number % 5 == 0
        trial = Trial(
            number=turn.number, values=values, sampler=sampler, revision=1, seen=seen,
            refused="x" if turn.number % 11 == 0 else "", folder=trial_folder(study.folder, turn.number),
            rungs=() if turn.number % 11 == 0 else tuple(
                RungResult(rung=rung, update=1, env_steps=1, per_seed=(objective,), objective=objective)
                for rung in range(1 + promoted)
            ),
            promotions=(Promotion(rung=1, seen=""),) if promoted else (),
        )  # fmt: skip
        study = dataclasses.replace(study, trials=(*study.trials, trial))
    return study


@pytest.mark.parametrize("synchronous", [False, True])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_proposals_can_be_asked_again(sampler: Sampler, synchronous: bool) -> None:
    study = search(sampler, 30, synchronous=synchronous, batch=4)
    for number in (1, 12, 30):
        turn = next_turn(dataclasses.replace(study, trials=study.trials[: number - 1]))
        assert propose(study, turn, study.trials[number - 1].seen) == study.trials[number - 1].values


def test_results_that_were_not_seen_do_not_matter() -> None:
    study = search("tpe", 25)
    turn = next_turn(study)
    late = dataclasses.replace(study.trials[24], rungs=())
    without = dataclasses.replace(study, trials=(*study.trials[:24], late))
    seen = known_before(without, turn)
    assert propose(study, turn, seen) == propose(without, turn, seen)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_later_proposals_are_better(sampler: Sampler) -> None:
    part, seeds = (10, 3) if sampler == "gp" else (20, 5)  # of three; a Gaussian process takes longer
    gains = []
    for seed in range(seeds):
        distances = [distance(trial.values) for trial in search(sampler, 3 * part, sampler_seed=seed).trials]
        gains.append(statistics.median(distances[:part]) / statistics.median(distances[-part:]))
    assert statistics.median(gains) > 1.2
