"""Proposals by the samplers of Optuna, which is asked and never stores anything: the files of the study do."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hmx.config.extras import install
from hmx.errors import HmxError
from hmx.records.plain import JsonValue
from hmx.study.records import Parameter, Sampler, Study, StudySettings, Trial, numbers_of

if TYPE_CHECKING:
    import optuna

NAMES: tuple[Sampler, ...] = ("tpe", "cmaes", "gp")
_NEEDS: dict[str, str] = {"cmaes": "cmaes", "gp": "torch"}
_SEED_STEP = 1_000_003  # between the seeds of two trials
_MAX_SEED = 2**32 - 1


def check_installed(sampler: Sampler) -> None:
    """Refuse a sampler whose packages are missing (exit code 2)."""
    from importlib.util import find_spec

    if sampler not in NAMES:
        return
    missing = [name for name in ("optuna", _NEEDS.get(sampler, "optuna")) if find_spec(name) is None]
    if missing:
        command = install("study") + (" torch" if sampler == "gp" else "")
        raise HmxError(f"the sampler {sampler} needs a package that is not installed: {missing[0]}", command)


def propose(study: Study, settings: StudySettings, number: int, seen: Sequence[str]) -> dict[str, JsonValue]:
    """Return the values of a trial; arguments as of `hmx.study.samplers.propose`."""
    check_installed(settings.sampler)
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        asked = optuna.create_study(
            sampler=_sampler(settings, number),
            direction="maximize" if settings.objective.higher_is_better else "minimize",
        )
        earlier = study.trials[: number - 1]
        if settings.sampler == "cmaes":
            _replay(asked, study, settings, earlier, seen)
        else:
            # A Gaussian process knows no pruned trials, so it compares all trials at the first rung.
            used = 1 if settings.sampler == "gp" else len(settings.rungs)
            known = [set(numbers_of(ranges)) for ranges in seen[:used]]
            for trial in earlier:
                rungs = [rung for rung, numbers in enumerate(known) if trial.number in numbers]
                asked.add_trial(_told(trial, study.history[trial.revision - 1].space, rungs, used))
        params = asked.ask(_distributions(settings.space)).params
    return _values(settings.space, params)


def _sampler(settings: StudySettings, number: int) -> optuna.samplers.BaseSampler:
    import optuna

    seed = (settings.sampler_seed + number * _SEED_STEP) % _MAX_SEED
    if settings.sampler == "tpe":
        return optuna.samplers.TPESampler(seed=seed, multivariate=True, group=True, constant_liar=True)
    if settings.sampler == "gp":
        import torch

        torch.set_num_threads(1)  # the matrices are small; on busy cores, threads that wait for each other take minutes
        return optuna.samplers.GPSampler(seed=seed, warn_independent_sampling=False)
    # CMA-ES has a state, which is rebuilt from the first trial on.
    return optuna.samplers.CmaEsSampler(seed=settings.sampler_seed, warn_independent_sampling=False)


def _told(trial: Trial, space: Sequence[Parameter], rungs: Sequence[int], last: int) -> optuna.trial.FrozenTrial:
    """Return a trial as Optuna knows it: complete at the last rung, pruned at another, running without a result."""
    import optuna

    results = {rung: trial.rungs[rung].objective for rung in rungs}
    reported: dict[int, float] = {rung: value for rung, value in results.items() if value is not None}
    state, value = optuna.trial.TrialState.RUNNING, None
    if trial.refused or (results and not reported):
        state = optuna.trial.TrialState.FAIL
    elif last - 1 in reported:
        state, value = optuna.trial.TrialState.COMPLETE, reported[last - 1]
    elif reported:
        state = optuna.trial.TrialState.PRUNED
    return optuna.trial.create_trial(
        state=state,
        value=value,
        params={key: _param(space, key, choice) for key, choice in trial.values.items()},
        distributions=_distributions(space),
        intermediate_values=reported,
    )


def _replay(
    asked: optuna.Study, study: Study, settings: StudySettings, earlier: Sequence[Trial], seen: Sequence[str]
) -> None:
    """Ask for all earlier trials again, and tell each result at the first rung when it was seen."""
    import optuna

    running: dict[int, optuna.Trial] = {}
    results = {trial.number: trial.rungs for trial in earlier}

    def tell(first_rung: str) -> None:
        for number in numbers_of(first_rung):
            if number in running and results[number]:
                objective = results[number][0].objective
                state = optuna.trial.TrialState.FAIL if objective is None else None
                asked.tell(running.pop(number), objective, state=state)

    for trial in earlier:
        tell(trial.seen[0] if trial.seen else "")
        running[trial.number] = asked.ask(_distributions(study.history[trial.revision - 1].space))
        if trial.refused:
            asked.tell(running.pop(trial.number), state=optuna.trial.TrialState.FAIL)
    tell(seen[0] if seen else "")


def _distributions(space: Sequence[Parameter]) -> dict[str, optuna.distributions.BaseDistribution]:
    import optuna

    kinds: dict[str, Any] = {}
    for one in space:
        if one.kind == "choice":
            kinds[one.key] = optuna.distributions.CategoricalDistribution(range(len(one.choices)))
        elif one.kind == "int":
            kinds[one.key] = optuna.distributions.IntDistribution(one.low, one.high, log=one.log)
        else:
            kinds[one.key] = optuna.distributions.FloatDistribution(one.low, one.high, log=one.log)
    return kinds


def _param(space: Sequence[Parameter], key: str, value: JsonValue) -> JsonValue:
    """Return the value of a parameter as Optuna knows it; a choice is its index, since it may be a list."""
    (parameter,) = (one for one in space if one.key == key)
    return parameter.choices.index(value) if parameter.kind == "choice" else value


def _values(space: Sequence[Parameter], params: dict[str, Any]) -> dict[str, JsonValue]:
    return {one.key: one.choices[params[one.key]] if one.kind == "choice" else params[one.key] for one in space}
