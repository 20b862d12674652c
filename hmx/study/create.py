"""Make a study, extend it, and find it."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from hmx.config import codec
from hmx.config.fields import replace, values_of
from hmx.config.files import make_folder, read_plain
from hmx.config.schema import Config
from hmx.errors import HmxError, counted, nearest
from hmx.records import meta
from hmx.records.metrics_table import METRICS
from hmx.registry.check import error_of, known_problems
from hmx.registry.load import Loaded
from hmx.registry.user_code import hashes_of
from hmx.reports.compare.request import EVALUATION
from hmx.study import optuna_samplers
from hmx.study.check import check_settings
from hmx.study.folder import config_choice, create_settings, read_study
from hmx.study.halving import expected_at
from hmx.study.places import Places
from hmx.study.plan import first_rung
from hmx.study.records import (
    CONFIGS,
    SETTINGS,
    TRIALS,
    Objective,
    Parameter,
    Sampler,
    Study,
    StudySettings,
    create,
)
from hmx.study.request import DEFAULT_CONFIRM, DEFAULT_TRIALS, STUDIES, AddRequest, SearchRequest
from hmx.study.samplers import grid_points
from hmx.study.space import check_space, parse_space
from hmx.study.state import standing

PLACES = Places("study", STUDIES, SETTINGS)
find_study, list_studies, study_place = PLACES.find, PLACES.names, PLACES.place
BASE = "base"  # name of the only configuration of a study
_GIVEN = ("--", "HMX_", "values")  # how origins begin that a user named for this study


def plan_study(folder: Path, configs: Mapping[str, Loaded], space: Sequence[str], request: SearchRequest) -> Study:
    """Return a new study without writing it.

    Args:
        folder: study folder.
        configs: what trials start from, by name.
        space: texts of `--space`.
        request: how to search.

    Raises:
        HmxError: an option, a range or a configuration is not valid, or there is a study (exit code 2).
    """
    PLACES.check_name(folder)
    if PLACES.is_one(folder):
        raise _exists(folder)
    bases = {name: base_config(loaded, request.metric == EVALUATION) for name, loaded in configs.items()}
    for cfg in bases.values():
        if problems := known_problems(cfg):
            raise error_of(problems, values_of(cfg))
    parameters = (*config_choice(list(bases)), *parse_space(space))
    if not parameters:
        raise HmxError("a study needs something to vary", "--space algo.learning_rate=1e-4..1e-2:log")
    check_space(parameters, bases)
    settings = _settings(parameters, request)
    planned = Study(folder=folder, history=(settings,), configs=bases, trials=(), confirmations=())
    short = first_rung(planned)
    if short and short.certain:
        raise HmxError(f"no trial can have a value: {short.why}", short.longer)
    return planned


def new_study(folder: Path, configs: Mapping[str, Loaded], space: Sequence[str], request: SearchRequest) -> Study:
    """Make a study; arguments and errors as of `plan_study`."""
    study = plan_study(folder, configs, space, request)
    for name, cfg in study.configs.items():
        path, text = folder / CONFIGS / f"{name}.toml", codec.to_toml(cfg)
        if not create(path, text) and not _contains(path, text):  # left by a command that did not finish
            hint = f"use another name, or delete the folder: rm -r {shlex.quote(str(folder))}"
            raise HmxError(f"{path} already exists, with another configuration", hint)
    make_folder(folder / TRIALS)
    if not create_settings(folder, study.settings):  # last: without it the folder is not a study
        raise _exists(folder)
    return read_study(folder)


def _contains(path: Path, text: str) -> bool:
    with contextlib.suppress(OSError):
        return read_plain(path) == text.encode()
    return False


def _exists(folder: Path) -> HmxError:
    now = standing(read_study(folder))
    remove = f"; or remove it: rm -r {shlex.quote(str(folder))}" if now.state == "new" else ""
    hint = f"{now.next.text}: {now.next.command}; or choose another name{remove}"
    return HmxError(f"there is a study {folder}, {now.state}", hint)


def add_to_study(folder: Path, space: Sequence[str], request: AddRequest) -> Study:
    """Extend the budget, the space or the confirmations of a study, by a new revision of its settings.

    A key of `space` replaces the range or choices of that key, or is varied from now on.

    Raises:
        HmxError: nothing to add, an invalid range, or another process has extended it at the same time (exit code 2).
    """
    study = read_study(folder)
    settings = study.settings
    added = {parameter.key: parameter for parameter in parse_space(space)}
    parameters = tuple(added.pop(one.key, one) for one in settings.space) + tuple(added.values())
    check_space(parameters, study.configs)
    extended = dataclasses.replace(settings, revision=settings.revision + 1, space=parameters)
    if settings.sampler == "grid":
        _check_choices(parameters)
        points = len(grid_points([*study.history, extended]))
        if request.trials:
            raise HmxError("the trials of a grid are its points", "add values: --space KEY=A|B|C")
        extended = dataclasses.replace(extended, trials=points)
    else:
        extended = dataclasses.replace(extended, trials=settings.trials + request.trials)
    if request.confirm:
        _check_confirmations(study, request.confirm)
        top = settings.confirm_top or SearchRequest.confirm_top
        extended = dataclasses.replace(extended, confirm_seeds=request.confirm, confirm_top=top)
    if dataclasses.replace(extended, revision=settings.revision, space=settings.space) == settings:
        more = "--space KEY=A|B|C adds values" if settings.sampler == "grid" else "--trials 40 adds trials"
        raise HmxError("there is nothing to add", f"{more}; --confirm 10 confirms the best")
    try:
        check_settings(extended)
    except ValueError as problem:
        raise HmxError(f"cannot extend {folder}: {problem}", "make another study: hmx study new") from None
    if not create_settings(folder, extended):
        raise HmxError(f"another process has extended {folder} at the same time", "run the command again")
    return read_study(folder)


def _check_confirmations(study: Study, seeds: int) -> None:
    """Refuse to mix confirmations on different numbers of seeds: they could not be ranked."""
    other = [one.trial for one in study.confirmations if len(one.seeds) != seeds]
    if other:
        count = len(study.confirmations[0].seeds)
        message = f"cannot confirm on {counted(seeds, 'seed')}: trial {other[0]} is confirmed on {count}"
        raise HmxError(message, "hmx study best STUDY --config FILE writes a configuration to train on any seeds")


def base_config(loaded: Loaded, evaluated: bool) -> Config:
    """Return the configuration of trials: without a name, and without evaluations that are not needed."""
    changes: dict[str, object] = {"run.name": "", "run.evaluations": 0, **hashes_of(values_of(loaded.config))}
    if evaluated and not loaded.config.run.eval_episodes:
        raise HmxError("--metric evaluation needs episodes", "--eval-episodes 100")
    if not evaluated and not loaded.origins.get("run.eval_episodes", "values").startswith(_GIVEN):
        changes["run.eval_episodes"] = 0
    return replace(loaded.config, changes)


def _settings(space: tuple[Parameter, ...], request: SearchRequest) -> StudySettings:
    choices = all(parameter.kind == "choice" for parameter in space)
    sampler: Sampler = request.sampler or ("grid" if choices else "quasi-random")
    optuna_samplers.check_installed(sampler)
    points = 0
    if sampler == "grid":
        _check_choices(space)
        points = math.prod(len(parameter.choices) for parameter in space)
        if request.trials not in (None, points):
            message = f"--trials {request.trials}: the grid has {counted(points, 'point')}, and each is a trial"
            raise HmxError(message, "leave out --trials, or use --sampler random")
    rungs = request.rungs or (1 if sampler == "grid" or request.metric == EVALUATION else 3)
    if request.metric == EVALUATION and rungs > 1:
        raise HmxError(f"--rungs {rungs}: only a run that has ended is evaluated", "--metric evaluation --rungs 1")
    settings = StudySettings(
        space=space,
        objective=objective_of(request),
        trials=points or request.trials or DEFAULT_TRIALS,
        rungs=tuple(1 / request.eta ** (rungs - 1 - rung) for rung in range(rungs)),
        eta=request.eta,
        sampler=sampler,
        sampler_seed=request.sampler_seed,
        batch=request.batch,
        synchronous=request.synchronous,
        max_kills=request.max_kills,
        versions=meta.versions(),
    )
    selects = min(request.confirm_top, expected_at(settings, rungs - 1)) < settings.trials
    seeds = request.confirm if request.confirm is not None else DEFAULT_CONFIRM * selects
    return dataclasses.replace(settings, confirm_top=request.confirm_top if seeds else 0, confirm_seeds=seeds)


def _check_choices(space: Sequence[Parameter]) -> None:
    ranges = [parameter.key for parameter in space if parameter.kind != "choice"]
    if ranges:
        hint = f"list its values: --space {ranges[0]}=A|B|C; or use another --sampler"
        raise HmxError(f"a grid has no ranges, but {ranges[0]} is one", hint)


def objective_of(request: SearchRequest) -> Objective:
    """Return the objective of a search; an HmxError (exit code 2) if options contradict each other or the metric."""
    if request.maximize and request.minimize:
        raise HmxError("--maximize and --minimize contradict each other", "give one of them")
    info, given = METRICS.get(request.metric), request.maximize or request.minimize
    if request.metric == EVALUATION:
        if request.minimize or request.measure != "final" or request.threshold is not None:
            message = "--metric evaluation is a mean return; a higher one is better"
            raise HmxError(message, "leave out --minimize, --measure, --threshold")
        return Objective(metric=EVALUATION)
    if info is None and not given:
        near = nearest(request.metric, [*METRICS, EVALUATION])
        hint = f"did you mean {near}?" if near else "for a metric of your own code, add --maximize or --minimize"
        raise HmxError(f"--metric {request.metric}: there is no such metric", hint)
    if info is not None and info.direction == "none" and not given:
        raise HmxError(f"--metric {request.metric}: more may be better or worse", "add --maximize or --minimize")
    timed = request.measure in ("steps_to", "cpu_seconds_to")
    if timed != (request.threshold is not None):
        message = f"--measure {request.measure} needs a threshold" if timed else "a threshold needs a measure of time"
        raise HmxError(message, "--measure steps_to --threshold 0.8")
    maximize = request.maximize or (not request.minimize and info is not None and info.direction == "up")
    return Objective(metric=request.metric, measure=request.measure, threshold=request.threshold, maximize=maximize)
