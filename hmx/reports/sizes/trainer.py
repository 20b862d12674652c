"""Check the inputs of the batch equations against the rules of `hmx train`."""

from __future__ import annotations

from dataclasses import replace

from hmx.config import fields, rules
from hmx.config.coerce import show
from hmx.config.env_facts import SEVERAL_AGENTS, own_agents
from hmx.config.env_source import find_source
from hmx.config.problem import Problem, fix
from hmx.config.schema import Config
from hmx.reports.sizes.source import SIZE_KEYS
from hmx.sizing.derived import size
from hmx.sizing.fit import exact_fit, fit_fixes, fit_text, is_exact, nearest_valid
from hmx.sizing.inputs import BatchInputs, violation
from hmx.sizing.repairs import batch_problems
from hmx.sizing.trainer import config_of


def check_trainer(trainer: Config, inputs: BatchInputs | None, changed: bool) -> tuple[Config | None, list[Problem]]:
    """Return the configuration of `hmx train` with these inputs, and everything that keeps it from running.

    `inputs` are None if some cannot be read; `changed` says whether options override those of `trainer`.

    Returns:
        The configuration, None if the inputs do not make one; and every problem, those of sizes first.
    """
    if not changed:
        return trainer, _problems(trainer)
    others = [p for p in _problems(trainer) if not SIZE_KEYS.intersection(p.values)]
    if inputs is None:
        return None, others
    found = batch_problems(inputs)
    if not found and exact_fit(inputs):
        found = [_no_fit(inputs)]
    if found:
        fixes = _fixes(found, inputs, trainer)
        return None, [*(p._replace(fixes=fixes) for p in found), *others]
    cfg = config_of(inputs, trainer)
    return cfg, _problems(cfg)


def config_warnings(cfg: Config) -> list[Problem]:
    """Return what will run but may not be intended; the configuration must have no problems."""
    found = [_translated("W", cfg, problem) for problem in rules.warnings(cfg)]
    if cfg.ppo.prio_alpha and cfg.ppo.prio_weights == "max":
        words = (
            "importance weights are divided by the largest of the minibatch, which scales the gradient by a factor "
            "that depends on ppo.num_minibatches: tune the learning rate again when you change the number"
        )
        keys = ("ppo.prio_weights", "ppo.num_minibatches")
        found.append(_translated("W", cfg, Problem("prio_weights", keys, words, fix("ppo.prio_weights", "clip"))))
    return found


def trainable(inputs: BatchInputs, base: Config) -> tuple[Config, tuple[str, ...]]:
    """Return a configuration of `hmx train` with sizes that fit exactly, and what else had to change, a line each."""
    cfg = config_of(inputs, base)
    source = find_source(cfg.env.id)
    if inputs.num_agents == 1 or cfg.env.id in SEVERAL_AGENTS or own_agents(cfg.env.id) or (source and source.own):
        return cfg, ()
    name = SEVERAL_AGENTS[0]
    changes = {"env.id": name, "net.kind": "auto"} if cfg.net.kind == "cells" else {"env.id": name}
    return fields.replace(cfg, changes), (f"env.id: {cfg.env.id} -> {name}, since {cfg.env.id} has one agent",)


def _problems(cfg: Config) -> list[Problem]:
    return [_translated("E", cfg, problem) for problem in rules.problems(cfg)]


def _fixes(found: list[Problem], inputs: BatchInputs, trainer: Config) -> tuple[tuple[str, object], ...]:
    """Return those repairs, and the nearest fit if it takes one change, that `hmx train` accepts too."""
    near = vars(nearest_valid(inputs))
    changes = [(name, value) for name, value in near.items() if value != getattr(inputs, name)]
    tried = [pair for problem in found for pair in problem.fixes] + (changes if len(changes) == 1 else [])

    def runs(field: str, value: object) -> bool:
        changed = replace(inputs, **{field: value})  # type: ignore[arg-type]  # fixes of sizes are whole numbers
        if not is_exact(changed):
            return False
        return not any(SIZE_KEYS.intersection(p.values) for p in _problems(config_of(changed, trainer)))

    return tuple(pair for pair in dict.fromkeys(tried) if runs(*pair))


def _no_fit(inputs: BatchInputs) -> Problem:
    sequences, agents = size(inputs, "segments"), size(inputs, "total_agents")
    words = (
        f"the {sequences:,} sequences of batch_size {inputs.batch_size:,} cannot be split among {agents:,} agents: "
        f"remainder {sequences % agents:,}; {fit_text(inputs)}"
    )
    values = {"segments": sequences, "remainder": sequences % agents}
    return violation("E_NO_EXACT_FIT", words, values, fit_fixes(inputs))


def _translated(kind: str, cfg: Config, problem: Problem) -> Problem:
    named = ", ".join(f"{key} = {show(fields.get(cfg, key))}" for key in problem.keys)
    values = {key: fields.get(cfg, key) for key in problem.keys}
    return violation(f"{kind}_{problem.code.upper()}", f"{named}: {problem.message}", values, problem.fixes)
