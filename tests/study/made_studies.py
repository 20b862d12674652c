"""Studies made up for tests: real files of a study and of its runs, but no training behind them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from made_runs import TINY, make_run

from hmx.config import codec
from hmx.config.fields import replace as with_fields
from hmx.config.schema import Config
from hmx.records import atomic
from hmx.records import meta as metas
from hmx.study.folder import create_settings
from hmx.study.records import (
    CONFIRMED,
    PROPOSAL,
    Confirmation,
    Objective,
    Promotion,
    RungResult,
    StudySettings,
    Trial,
    confirmation_folder,
    promotion_file,
    rung_file,
    trial_folder,
    write_once,
)
from hmx.study.space import parse_space, value_at

SPACE = ("algo.learning_rate=1e-4..1e-2:log", "ppo.ent_coef=0..0.05", "net.hidden=64,64|256,256")
RETURN = Objective()
Score = Callable[[Mapping[str, Any]], float]


def peak(values: Mapping[str, Any]) -> float:
    """A score that is best at a learning rate of 1e-3, and a little better with a large network."""
    return 100 - 60 * (math.log10(values["algo.learning_rate"]) + 3) ** 2 + 2 * (values.get("net.hidden") == [256, 256])


def small_study(folder: Path, trials: int) -> Path:
    """A study of two trials with a file of every kind, but without runs; its budget is `trials`."""
    (folder / "configs").mkdir(parents=True)
    (folder / "configs" / "base.toml").write_text(codec.to_toml(Config()))
    space = parse_space(["algo.learning_rate=1e-4..1e-2:log", "net.activation=tanh|relu"])
    create_settings(folder, StudySettings(
        space=space, trials=trials, rungs=(0.5, 1.0), eta=2, sampler="random", confirm_top=1, confirm_seeds=2
    ))  # fmt: skip
    values = {"algo.learning_rate": 0.001, "net.activation": "tanh"}
    for number, seen in ((1, ()), (2, ("1",))):
        place = trial_folder(folder, number)
        write_once(place / PROPOSAL, Trial(number=number, values=values, sampler="random", revision=1, seen=seen))
        write_once(rung_file(place, 0), RungResult(rung=0, update=1, env_steps=8, per_seed=(1.0,), objective=1.0))
    write_once(promotion_file(trial_folder(folder, 1), 1), Promotion(rung=1, seen="1-2"))
    place = confirmation_folder(folder, 1)
    write_once(place / CONFIRMED, Confirmation(trial=1, seeds=(1, 2), seen="1"))
    write_once(rung_file(place, 0), RungResult(rung=0, update=1, env_steps=8, per_seed=(1.0, 2.0), objective=1.5))
    return folder


@patch("os.fsync", lambda file: None)  # these files need not survive a power failure
def make_study(
    folder: Path,
    score: Score,
    *,
    space: Sequence[str] = SPACE,
    trials: int = 20,
    seeds: int = 3,
    noise: float = 0.0,
    rungs: Sequence[float] = (1.0,),
    eta: int = 3,
    confirm: int = 0,
    confirm_seeds: int = 10,
    objective: Objective = RETURN,
    runs: bool = False,
    **settings: Any,
) -> Path:
    """A study of random trials; each result is the score of its values, with noise per seed.

    At a rung, the score is multiplied by its share of the run, and one trial of `eta` is promoted. With `runs`,
    confirmations, or trials if there are none, have curves that rise in a straight line.
    """
    draw = np.random.default_rng(0)
    parameters = parse_space(space)
    folder.mkdir(parents=True)
    create_settings(folder, StudySettings(
        space=parameters, trials=trials, rungs=tuple(rungs), eta=eta, objective=objective, sampler="random", **settings,
    ))  # fmt: skip
    (folder / "configs").mkdir()
    atomic.write_text(folder / "configs" / "base.toml", codec.to_toml(with_fields(Config(), TINY)))
    values = [{one.key: value_at(one, draw.random()) for one in parameters} for _ in range(trials)]

    def result(number: int, rung: int, count: int) -> RungResult:
        share = rungs[rung]
        level = share * score(values[number - 1])
        per_seed = tuple(float(level + noise * draw.standard_normal()) for _ in range(count))
        known = np.isfinite(per_seed).all()
        return RungResult(
            rung=rung, update=round(100 * share), env_steps=round(25600 * share),
            per_seed=tuple(value if np.isfinite(value) else None for value in per_seed),
            objective=float(np.mean(per_seed)) if known else None,
        )  # fmt: skip

    running = list(range(1, trials + 1))
    for number in running:
        write_once(trial_folder(folder, number) / PROPOSAL,
                   Trial(number=number, values=values[number - 1], sampler="random", revision=1))  # fmt: skip
    for rung in range(len(rungs)):
        results = {number: result(number, rung, seeds) for number in running}
        for number, found in results.items():
            write_once(rung_file(trial_folder(folder, number), rung), found)
        sign = -1 if objective.higher_is_better else 1
        known = sorted(
            (n for n in running if results[n].objective is not None), key=lambda n: sign * results[n].objective
        )
        running = known[: max(1, len(known) // eta)]
        for number in running if rung + 1 < len(rungs) else ():
            write_once(promotion_file(trial_folder(folder, number), rung + 1), Promotion(rung=rung + 1, seen=""))
        for number in results if runs and not confirm else ():
            if number not in running or rung + 1 == len(rungs):
                _run(trial_folder(folder, number), results[number], values[number - 1], range(seeds))
    for number in known[:confirm]:
        place = confirmation_folder(folder, number)
        fresh = tuple(range(100, 100 + confirm_seeds))
        found = result(number, len(rungs) - 1, confirm_seeds)
        write_once(place / CONFIRMED, Confirmation(trial=number, seeds=fresh, seen=""))
        write_once(rung_file(place, 0), replace(found, rung=0))
        if runs:
            _run(place, found, values[number - 1], fresh)
    return folder


def _run(folder: Path, result: RungResult, values: Mapping[str, Any], seeds: Sequence[int]) -> None:
    curves = {
        seed: [level * (update + 1) / result.update for update in range(result.update)]
        for seed, level in zip(seeds, result.per_seed, strict=True) if level is not None
    }  # fmt: skip
    path = make_run(folder, curves, changes=codec.resolve(values)[0]) / "meta.json"
    metas.write(path, metas.changed(metas.read(path), cpu_seconds=60.0 * len(seeds)))
