"""Where the inputs of the batch equations start from, and how they meet the configuration of a trainer."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

from hmx.config import derive
from hmx.config.coerce import show
from hmx.config.env_facts import own_agents
from hmx.config.fields import get, replace
from hmx.config.load import load, read_file
from hmx.config.problem import Problem
from hmx.config.schema import Config
from hmx.errors import HmxError
from hmx.records.layout import find_run
from hmx.sizing.batch import (
    BatchInputs,
    BatchProblem,
    batch_problems,
    config_of,
    exact_fit,
    inputs_of,
    is_exact,
    nearest_valid,
)

METTA = "metta"
"""The preset whose inputs are those of the equations, and whose hyperparameters stand in where none are given."""

DEFAULTS = "the defaults of the Metta training equations"
TABLE = "batch"

SIZES = {
    "env.num_envs", "env.num_agents", "algo.num_steps", "algo.bptt_horizon", "algo.num_minibatches",
    "algo.update_epochs", "run.total_steps",
}  # fmt: skip
"""The keys of a trainer's configuration that the inputs decide."""


class Source(NamedTuple):
    """What options are laid over."""

    name: str
    raw: dict[str, Any]  # inputs by name; those missing take their defaults
    trainer: Config | None  # the configuration of `hmx train` that the inputs come from
    hypers: Config  # whose hyperparameters, environment and network count
    notes: tuple[str, ...] = ()


def read_source(preset: str | None = None, config: str | Path | None = None, run: str | Path | None = None) -> Source:
    """The source that is named; none is the defaults of the equations.

    Args:
        preset: of `hmx train`.
        config: a file of `hmx train`, or one with a table `[batch]` of inputs.
        run: name or path of a run.

    Raises:
        HmxError: a run beside another source, something that cannot be read, or values that no trainer takes (exit
            codes 2 and 3).
    """
    if run is not None:
        for option, value in (("--preset", preset), ("--config", config)):
            if value is not None:
                raise HmxError(
                    f"a run has a configuration of its own: {option} cannot be given with it", "leave one out"
                )
        paths = find_run(run)
        return _of_trainer(f"run {paths.name}", load(file=paths.config, environ={}, check=False, new_run=True).config)
    file = None if config is None else Path(config)
    table = None if file is None else _table(file)
    if preset not in (None, METTA) or (file is not None and table is None):
        loaded = load(preset=preset, file=None if table is not None else file, check=False).config
        source = _of_trainer(
            " and ".join([f"preset {preset}"] * (preset is not None) + [str(file)] * bool(file)), loaded
        )
    else:
        name = f"preset {METTA}" if preset else DEFAULTS
        hypers = load(preset=METTA, environ={}).config
        source = Source(name, {}, None, hypers, (_relation(hypers),) if preset else ())
    if table is None:
        return source
    name = str(file) if preset is None else f"preset {preset} and {file}"
    return source._replace(name=name, raw={**source.raw, **table})


def config_problems(cfg: Config) -> list[BatchProblem]:
    """What keeps the configuration of a trainer from running, in the form of the batch equations."""
    return [_translated("E", cfg, problem) for problem in derive.problems(cfg)]


def config_warnings(cfg: Config) -> list[BatchProblem]:
    """What will run, but perhaps not as meant; the configuration must have no problems."""
    return [_translated("W", cfg, problem) for problem in derive.warnings(cfg)]


def judge(trainer: Config, inputs: BatchInputs | None, changed: bool) -> tuple[Config | None, list[BatchProblem]]:
    """The configuration of a trainer with these inputs, and what keeps it from running.

    Args:
        trainer: the configuration that the inputs come from.
        inputs: as given; None where some cannot be read.
        changed: whether anything was laid over those of `trainer`.

    Returns:
        The configuration, None where the inputs make none; and every problem, those of sizes first.
    """
    if not changed:
        return trainer, config_problems(trainer)
    others = [p for p in config_problems(trainer) if not SIZES.intersection(p.values)]
    if inputs is None:
        return None, others
    found = batch_problems(inputs, bootstrap_rows=True)
    if not found and (near := exact_fit(inputs, bootstrap_rows=True)):
        found = [_no_fit(inputs, near)]
    if found:
        fixes = _fixes(found, inputs, trainer)
        return None, [*(p._replace(fixes=fixes) for p in found), *others]
    cfg = config_of(inputs, trainer)
    return cfg, config_problems(cfg)


def _fixes(found: list[BatchProblem], inputs: BatchInputs, trainer: Config) -> tuple[tuple[str, int], ...]:
    """Of all repairs, and of the nearest fit if it takes one change, those that the trainer takes too."""
    near = dataclasses.asdict(nearest_valid(inputs, bootstrap_rows=True))
    changes = [(name, value) for name, value in near.items() if value != getattr(inputs, name)]
    tried = [fix for problem in found for fix in problem.fixes] + (changes if len(changes) == 1 else [])

    def runs(field: str, value: int) -> bool:
        changed = dataclasses.replace(inputs, **{field: value})
        if not is_exact(changed, bootstrap_rows=True):
            return False
        sizes = [p for p in config_problems(config_of(changed, trainer)) if SIZES.intersection(p.values)]
        return not sizes

    return tuple(fix for fix in dict.fromkeys(tried) if runs(*fix))


def trainable(inputs: BatchInputs, base: Config) -> tuple[Config, tuple[str, ...]]:
    """A configuration of `hmx train` with sizes that fit exactly, and what besides them had to change, a line each."""
    cfg = config_of(inputs, base)
    if inputs.num_agents == 1 or cfg.env.id in derive.SEVERAL_AGENTS or own_agents(cfg.env.id):
        return cfg, ()
    name = derive.SEVERAL_AGENTS[0]
    changes = {"env.id": name, "net.kind": "auto"} if cfg.net.kind == "cells" else {"env.id": name}
    return replace(cfg, changes), (f"env.id: {cfg.env.id} -> {name}, since {cfg.env.id} has one agent",)


def _of_trainer(name: str, cfg: Config) -> Source:
    if cfg.algo.name == "dqn":
        raise HmxError(
            f"{name} is for dqn, which draws its batches from a buffer: the batch equations say nothing of it",
            "hmx train --dry-run with the same options shows its sizes, its replay ratio and its memory",
        )
    broken = {key for p in derive.problems(cfg) if p.code in ("value", "range") for key in p.keys}
    return Source(name, {} if SIZES & broken else dataclasses.asdict(inputs_of(cfg)), cfg, cfg)


def _table(file: Path) -> dict[str, Any] | None:
    """The inputs of a file with a table `[batch]`; None for any other file."""
    values = read_file(file).values
    prefix = f"{TABLE}."
    if not any(key.startswith(prefix) for key in values):
        return None
    if others := [key for key in values if not key.startswith(prefix)]:
        words = f"{file}: {others[0]} beside the table [{TABLE}]"
        raise HmxError(words, f"inputs go into [{TABLE}], or a configuration of hmx train into a file of its own")
    return {key.removeprefix(prefix): value for key, value in values.items()}


def _relation(cfg: Config) -> str:
    sizes = derive.derive(cfg)
    return (
        "sizes as published; hmx train --preset metta has the same hyperparameters, rows of "
        f"{sizes.horizon} steps and {cfg.algo.num_minibatches} minibatches, but {cfg.env.num_envs:,} environments of "
        f"{cfg.env.num_agents} agent: {sizes.agent_steps:,} agent steps per update"
    )


def _no_fit(inputs: BatchInputs, near: dict[str, dict[str, Any]]) -> BatchProblem:
    horizon = inputs.bptt_horizon
    fixes = [("batch_size", fit["batch_size"]) for fit in near.values() if fit["keeps_minibatch"]]
    rows, agents = inputs.batch_size // horizon, near["down"]["batch_size"] // horizon
    ways = (f"{fit['batch_size']:,} with minibatch_size {fit['minibatch_size']:,}" for fit in near.values())
    words = (
        f"batch_size {inputs.batch_size:,} is {rows:,} rows of {horizon:,} steps, which do not split among the agents: "
        f"{rows - agents:,} over; batch_size {' or '.join(ways)} fits exactly"
    )
    values = {"segments": rows, "remainder": rows - agents}
    return BatchProblem("E_NO_EXACT_FIT", words, values, tuple(fixes))


def _translated(kind: str, cfg: Config, problem: Problem) -> BatchProblem:
    pairs = [text.partition("=") for text in problem.suggestion.split(" or ") if "=" in text]
    fixes: Any = tuple((key, int(value) if value.isdecimal() else value) for key, _, value in pairs)
    named = ", ".join(f"{key} = {show(get(cfg, key))}" for key in problem.keys)
    values = {key: _plain(get(cfg, key)) for key in problem.keys}
    return BatchProblem(f"{kind}_{problem.code.upper()}", f"{named}: {problem.message}", values, fixes)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
