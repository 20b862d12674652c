"""Compute all values that follow from the sizes of a run, their problems, and the repairs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from hmx.config import fields
from hmx.config.coerce import show_all, typed_number
from hmx.config.divisors import all_divisors
from hmx.config.fields import values_of
from hmx.config.problem import Fixes, Problem, fix
from hmx.config.schedules import SCHEDULED
from hmx.config.schema import Config
from hmx.errors import HmxError, nearest
from hmx.registry.algorithms import hyperparameters
from hmx.registry.check import known_problems, known_warnings
from hmx.registry.derive import derive
from hmx.reports.compute_config import findings
from hmx.reports.compute_config.cautions import batch_warnings, low_use
from hmx.reports.compute_config.derived import derive_batch, size
from hmx.reports.compute_config.fit import batch_fits, exact_fit, fit_text, is_exact
from hmx.reports.compute_config.inputs import (
    DEFAULTS,
    BatchInputs,
    Scalar,
    TrainerInputs,
    json_value,
    read_inputs,
    violation,
)
from hmx.reports.compute_config.metta_memory import buffer_memory
from hmx.reports.compute_config.repairs import batch_problems, suggestions
from hmx.reports.compute_config.request import SizesRequest
from hmx.reports.compute_config.source import SIZE_KEYS, SizesSource
from hmx.runs.memory_parts import Memory, largest_fit

# The trainer counts in Python, its environments need no workers, and a run of less than one update is refused.
_NOT_FOR_TRAINERS = {"W_STEP_COUNTER_NEEDS_INT64", "W_ONE_ENV_PER_FORWARD", "W_TOTAL_LT_BATCH", "W_ROLLOUT_OVERSHOOT"}


def compute_sizes(source: SizesSource, given: Mapping[str, object], request: SizesRequest) -> findings.SizesFindings:
    """Compute the sizes of one configuration.

    `given` overrides inputs of the source; values that are not whole numbers become problems. Unreadable or impossible
    questions are refused.
    """
    trainer, limit = source.trainer, request.gpu_bytes
    if trainer is not None and request.parameters != SizesRequest.parameters:
        raise HmxError("cannot use --parameters: the network of this configuration is known", "leave it out")
    values = {**source.inputs, **given}
    read = read_inputs(values, BatchInputs if trainer is None else TrainerInputs)
    inputs, problems = (None, read) if isinstance(read, list) else (read, [])
    cfg = None
    if trainer is not None:
        cfg, more = check_trainer(source, inputs, changed=bool(given) and bool(source.inputs))
        problems = [*problems, *more]
        inputs = inputs if source.inputs else None
    elif inputs is not None:
        problems = batch_problems(inputs)
    derived = derive_batch(inputs) if inputs else None
    speeds = request.speeds if inputs else ()  # refused before the memory is computed, which takes seconds
    memory, unknown = _memory(source, inputs, None if problems else cfg, request) if inputs else (None, "")
    warnings = _warnings(inputs, source, None if problems else cfg) if inputs else []
    if inputs and memory and limit is not None and memory.total_bytes > limit:
        warnings.append(_over_memory(source, inputs, memory, request, limit))
    note = low_use(inputs) if inputs and trainer is None else ""
    return findings.SizesFindings(
        valid=not problems,
        source=source.name,
        trainer=trainer is not None,
        workers=source.workers,
        input=_shown_inputs(source, values),
        given=tuple(given),
        derived=derived,
        train=derive(cfg) if cfg and not problems else None,
        errors=tuple(problems),
        warnings=tuple(warnings),
        codes={"errors": tuple(p.code for p in problems), "warnings": tuple(p.code for p in warnings)},
        suggestions=_suggestions(inputs, problems, trainer is not None),
        exact_fit_batch=exact_fit(inputs) if inputs else {},
        memory=memory,
        gpu_memory_bytes=limit,
        schedules=schedules(source.hypers),
        horizons=horizons(
            source.hypers.algo.gamma, source.hypers.ppo.gae_lambda, inputs.bptt_horizon if inputs else None
        ),
        wall_clock=_wall_clock(inputs, derived or {}, speeds) if inputs and speeds else None,
        notes=(*source.notes, *filter(None, (note, unknown))),
    )


def sweep_sizes(
    source: SizesSource, given: Mapping[str, object], sweep: str, request: SizesRequest
) -> findings.SweepFindings:
    """Compute the sizes for each value of one input, see `compute_sizes`; `sweep` is text such as `num_agents=3,24`."""
    field, listed = swept_input(sweep), sweep.partition("=")[2]
    values = [typed_number(part) for part in listed.split(",")] if listed.strip() else []
    if field not in DEFAULTS:
        near = nearest(field, DEFAULTS)
        hint = f"did you mean --sweep {near}=...?" if near else f"inputs are {', '.join(DEFAULTS)}"
        raise HmxError(f"cannot sweep {field}: no such input", hint)
    if not values:
        raise HmxError(f"cannot sweep {field}: no values", f"--sweep {field}=1,2,4")
    if field in given:
        raise HmxError(f"cannot sweep {field}: it is also given", f"leave out --{field.replace('_', '-')}")
    results = tuple(compute_sizes(source, {**given, field: value}, request) for value in values)
    return findings.SweepFindings(sweep=field, results=results)


def swept_input(sweep: str) -> str:
    """Return the name of the input in text such as `--num-agents=3,24`."""
    return sweep.partition("=")[0].strip().removeprefix("--").replace("-", "_")


def schedules(cfg: Config) -> dict[str, findings.ScheduleEnds]:
    """Return every scheduled hyperparameter at the start, in the middle and at the end of the run."""
    start, middle, end = (hyperparameters(cfg, done) for done in (0.0, 0.5, 1.0))
    kinds = {name: str(fields.get(cfg, keys.schedule)) for name, keys in SCHEDULED.items()}
    return {
        name: findings.ScheduleEnds(kinds.get(name, "linear"), value, middle[name], end[name])
        for name, value in start.items()
    }


def horizons(gamma: float, gae_lambda: float, sequence: int | None) -> findings.Horizons:
    """Return how far rewards and advantages look ahead, and the length of a training sequence."""
    decay = gamma * gae_lambda
    return findings.Horizons(
        gamma=gamma,
        gae_lambda=gae_lambda,
        reward_steps=1.0 / (1.0 - gamma) if gamma < 1.0 else None,
        advantage_steps=1.0 / (1.0 - decay) if decay < 1.0 else None,
        bptt_horizon=sequence,
    )


def _warnings(inputs: BatchInputs, source: SizesSource, cfg: Config | None) -> list[Problem]:
    cautions = batch_warnings(inputs)
    if source.trainer is None:
        return cautions
    return [p for p in cautions if p.code not in _NOT_FOR_TRAINERS] + (config_warnings(cfg) if cfg else [])


def _suggestions(inputs: BatchInputs | None, problems: Sequence[Problem], trained: bool) -> Fixes:
    """Return the repairs worth listing; those for `hmx train` in the order of its problems."""
    if trained:
        return tuple(dict.fromkeys(fix for p in problems for fix in p.fixes))
    return tuple(suggestions(inputs)) if inputs and problems else ()


def _memory(
    source: SizesSource, inputs: BatchInputs, cfg: Config | None, request: SizesRequest
) -> tuple[Memory | None, str]:
    """Return the memory with these inputs, of a configuration of `hmx train` if it runs; or why it is not known."""
    if "samples_per_update" not in derive_batch(inputs):
        return None, ""
    if source.trainer is None:
        return buffer_memory(inputs, request.parameters), ""
    if cfg is None or source.memory is None:
        return None, ""
    try:
        return source.memory(cfg), ""
    except HmxError as error:
        return None, f"memory is unknown: {error.message}"


def _over_memory(
    source: SizesSource, inputs: BatchInputs, memory: Memory, request: SizesRequest, limit: int
) -> Problem:
    """Return the warning, with the largest batch and the largest minibatch that alone are below the limit."""
    horizon, unit = inputs.bptt_horizon, inputs.minibatch_size
    if source.trainer is not None:
        unit = math.lcm(unit, size(inputs, "total_agents") * horizon)
    minibatches = [steps * horizon for steps in all_divisors(inputs.batch_size // horizon)]

    def smaller(field: str, below: Callable[[int], int]) -> int:
        def needed(value: int) -> int:
            changed = replace(inputs, **{field: value})
            cfg = source.trained(changed) if source.trainer is not None else None
            less, _ = _memory(source, changed, cfg, request)
            return less.total_bytes if less is not None else limit + 1

        return largest_fit(needed, getattr(inputs, field), limit, below)

    fits = (
        ("batch_size", smaller("batch_size", lambda steps: steps // unit * unit)),
        (
            "minibatch_size",
            smaller("minibatch_size", lambda steps: max((m for m in minibatches if m <= steps), default=0)),
        ),
    )
    fixes = tuple((key, value) for key, value in fits if value and not batch_problems(replace(inputs, **{key: value})))
    message = (
        f"about {memory.total_bytes:,} bytes ({memory.total_bytes_low:,} to {memory.total_bytes_high:,}) are needed, "
        f"more than the {limit:,} of --gpu-mem"
    )
    return violation("W_BUFFER_OVER_MEMORY", message, {"needed": memory.total_bytes, "given": limit}, fixes)


def _wall_clock(inputs: BatchInputs, derived: Mapping[str, object], speeds: Sequence[float]) -> findings.WallClock:
    ratio = derived.get("rollout_overshoot_ratio", 1.0)
    over = ratio if isinstance(ratio, float) else 1.0
    total = inputs.total_timesteps
    return findings.WallClock(
        total, over, tuple(findings.RunTime(sps, total / sps, sps / over, total * over / sps) for sps in speeds)
    )


def _shown_inputs(source: SizesSource, values: Mapping[str, object]) -> dict[str, Scalar]:
    """Return the inputs as given; those of a configuration that has none, the keys that they would follow from."""
    if source.trainer is not None and not source.inputs:
        configured = values_of(source.trainer)
        return {key: json_value(configured[key]) for key in configured if key in SIZE_KEYS}
    return {name: json_value(value) for name, value in {**DEFAULTS, **values}.items()}


def check_trainer(
    source: SizesSource, inputs: BatchInputs | None, changed: bool
) -> tuple[Config | None, list[Problem]]:
    """Return the configuration of `hmx train` with these inputs, and all its problems.

    `inputs` are None if some cannot be read; `changed` says whether options override those of the source.

    Returns:
        The configuration, None if the inputs do not give one; and every problem, those of sizes first.
    """
    if not changed:
        return source.hypers, _problems(source.hypers)
    others = [p for p in _problems(source.hypers) if not SIZE_KEYS.intersection(p.values)]
    if inputs is None:
        return None, others
    broken = batch_problems(inputs)
    if not broken and exact_fit(inputs):
        broken = [_no_fit(inputs)]
    if broken:
        fixes = _fixes(broken, inputs, source)
        return None, [*(p._replace(fixes=fixes) for p in broken), *others]
    cfg = source.trained(inputs)
    return cfg, _problems(cfg)


def config_warnings(cfg: Config) -> list[Problem]:
    """List settings that will run but may not be intended; the configuration must have no problems."""
    values = values_of(cfg)
    cautions = [_translated("W", values, problem) for problem in known_warnings(cfg)]
    if cfg.ppo.prio_alpha and cfg.ppo.prio_weights == "max":
        message = (
            "importance weights are divided by the largest of the minibatch, which scales the gradient by a factor "
            "that depends on ppo.num_minibatches: tune the learning rate again when you change the number"
        )
        keys = ("ppo.prio_weights", "ppo.num_minibatches")
        cautions.append(
            _translated("W", values, Problem("prio_weights", keys, message, fix("ppo.prio_weights", "clip")))
        )
    return cautions


def _problems(cfg: Config) -> list[Problem]:
    values = values_of(cfg)
    return [_translated("E", values, problem) for problem in known_problems(cfg)]


def _fixes(broken: list[Problem], inputs: BatchInputs, source: SizesSource) -> Fixes:
    """Return those repairs that fit exactly and that `hmx train` accepts too."""
    tried = [pair for problem in broken for pair in problem.fixes]

    def runs(field: str, value: int) -> bool:
        changed = replace(inputs, **{field: value})
        if not is_exact(changed):
            return False
        return not any(SIZE_KEYS.intersection(p.values) for p in _problems(source.trained(changed)))

    return tuple(pair for pair in dict.fromkeys(tried) if runs(*pair))


def _no_fit(inputs: BatchInputs) -> Problem:
    sequences, agents = size(inputs, "segments"), size(inputs, "total_agents")
    message = (
        f"the {sequences:,} sequences of batch_size {inputs.batch_size:,} cannot be split among {agents:,} agents: "
        f"remainder {sequences % agents:,}; {fit_text(inputs)}"
    )
    values = {"segments": sequences, "total_agents": agents, "remainder": sequences % agents}
    return violation("E_NO_EXACT_FIT", message, values, batch_fits(inputs))


def _translated(kind: str, configured: Mapping[str, object], problem: Problem) -> Problem:
    values = {key: configured.get(key) for key in problem.keys}
    message = f"{show_all(values)}: {problem.message}"
    return violation(f"{kind}_{problem.code.upper()}", message, values, problem.fixes)
