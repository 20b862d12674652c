"""`hmx compute-config`: what follows from the sizes of a run, what is wrong with them, and what would be right."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from hmx.config import codec, derive
from hmx.config.env_facts import extra_of, facts_known
from hmx.config.fields import replace
from hmx.config.hypers import horizons, schedule_table
from hmx.config.names import nearest
from hmx.config.primes import all_divisors
from hmx.config.problem import line
from hmx.config.schema import Config
from hmx.errors import HmxError
from hmx.reports.sizes.source import SIZES, Source, config_warnings, judge, read_source, trainable
from hmx.sizing import batch
from hmx.sizing.batch import INPUT_FIELDS, BatchInputs, BatchProblem
from hmx.sizing.memory import Memory, buffer_memory, trainer_memory

__all__ = ["Asks", "ComputeResult", "Fixed", "Source", "compute_config", "fix", "read_source", "sweep"]

SCHEMA = 1
PARAMETERS = 1_000_000
"""Assumed of a network that nothing is known of."""

# The trainer counts in Python, its environments need no workers, and a run of less than one update is refused.
_NOT_FOR_TRAINERS = {"W_STEP_COUNTER_NEEDS_INT64", "W_ONE_ENV_PER_FORWARD", "W_TOTAL_LT_BATCH", "W_ROLLOUT_OVERSHOOT"}


class Asks(NamedTuple):
    """What a report is to answer besides: how long at these speeds, whether it fits this memory."""

    sps: tuple[float, ...] = ()  # agent steps per second
    gpu_memory: int | None = None  # bytes
    parameters: int | None = None  # of the network, where no configuration of a trainer tells


@dataclasses.dataclass(frozen=True, kw_only=True)
class ComputeResult:
    """One configuration worked out. What cannot be computed is None; docs/batch-math.md explains every key."""

    source: str
    trainer: bool  # from a configuration of `hmx train`: then its stricter rules hold
    inputs: dict[str, Any]
    given: tuple[str, ...]  # inputs set by options
    derived: dict[str, Any] | None
    train: dict[str, int] | None  # what `hmx train` makes of it, see `hmx.config.derive.Derived`
    errors: tuple[BatchProblem, ...]
    warnings: tuple[BatchProblem, ...]
    suggestions: tuple[tuple[str, Any], ...]
    exact_fit: dict[str, dict[str, Any]] | None
    memory: Memory | None
    gpu_memory: int | None
    schedules: dict[str, dict[str, Any]]
    horizons: dict[str, float | int | None]
    wall_clock: dict[str, Any] | None
    notes: tuple[str, ...]

    @property
    def valid(self) -> bool:
        """Whether it would run."""
        return not self.errors

    @property
    def only_sizes(self) -> bool:
        """Whether every error is about sizes, and not about another key of the configuration."""
        return all(not any("." in key for key in p.values) or SIZES.intersection(p.values) for p in self.errors)

    def to_json(self) -> dict[str, Any]:
        """One object with stable keys."""
        memory = self.memory.to_json() | {"gpu_memory_bytes": self.gpu_memory} if self.memory else None
        return {
            "schema": SCHEMA,
            "valid": self.valid,
            "source": self.source,
            "trainer": self.trainer,
            "input": {name: _plain(value) for name, value in self.inputs.items()},
            "derived": self.derived,
            "train": self.train,
            "errors": [_problem_json(p) for p in self.errors],
            "warnings": [_problem_json(p) for p in self.warnings],
            "codes": {"errors": [p.code for p in self.errors], "warnings": [p.code for p in self.warnings]},
            "suggestions": [{name: value} for name, value in self.suggestions],
            "exact_fit_batch": self.exact_fit,
            "memory": memory,
            "schedules": self.schedules,
            "horizons": self.horizons,
            "wall_clock": self.wall_clock,
            "notes": list(self.notes),
        }


def compute_config(source: Source, options: Mapping[str, Any] | None = None, asks: Asks | None = None) -> ComputeResult:
    """Works one configuration out.

    Args:
        source: what the inputs start from.
        options: inputs by name, laid over those of the source; anything but a whole number becomes a problem.
        asks: what else to answer.

    Raises:
        HmxError: a number of parameters for a network that is known.
    """
    options, asks = dict(options or {}), asks or Asks()
    if source.trainer and asks.parameters is not None:
        raise HmxError("the network of this configuration is known: --parameters cannot change it", "leave it out")
    raw = {**source.raw, **options}
    inputs, found = batch.read_inputs(raw)
    cfg, trained = None, source.trainer is not None
    if source.trainer is not None:
        cfg, more = judge(source.trainer, inputs, changed=bool(options))
        found = [*found, *more]
        inputs = inputs if source.raw else None
    elif inputs is not None:
        found = batch.batch_problems(inputs)
    derived = batch.derive_batch(inputs) if inputs else None
    warnings = _warnings(inputs, cfg if not found else None, trained) if inputs else []
    memory = _memory(source, inputs, asks) if inputs else None
    if inputs and memory and asks.gpu_memory is not None and memory.total > asks.gpu_memory:
        warnings.append(_over_memory(source, inputs, memory, asks, asks.gpu_memory))
    return ComputeResult(
        source=source.name,
        trainer=trained,
        inputs={name: raw.get(name, field.default) for name, field in INPUT_FIELDS.items()} | raw,
        given=tuple(options),
        derived=derived,
        train=derive.derive(cfg)._asdict() if cfg and not found else None,
        errors=tuple(found),
        warnings=tuple(warnings),
        suggestions=_suggestions(inputs, found, trained),
        exact_fit=batch.exact_fit(inputs, bootstrap_rows=trained) if inputs else None,
        memory=memory,
        gpu_memory=asks.gpu_memory,
        schedules=schedule_table(source.hypers.algo),
        horizons=horizons(source.hypers.algo, inputs.bptt_horizon if inputs else None),
        wall_clock=_wall_clock(inputs, derived or {}, asks.sps) if inputs and asks.sps else None,
        notes=(*source.notes, *(note.message for note in batch.batch_notes(inputs)))
        if inputs and not trained
        else (*source.notes, *_unmeasured(source)),
    )


def sweep(
    source: Source,
    field: str,
    values: Sequence[Any],
    options: Mapping[str, Any] | None = None,
    asks: Asks | None = None,
) -> tuple[ComputeResult, ...]:
    """One result for each value of one input.

    Raises:
        HmxError: no such input, no values, or an input that is given as an option too.
    """
    if field not in INPUT_FIELDS:
        near = nearest(field, INPUT_FIELDS)
        hint = f"did you mean --sweep {near}=...?" if near else f"inputs are {', '.join(INPUT_FIELDS)}"
        raise HmxError(f"--sweep {field}: no such input", hint)
    if not values:
        raise HmxError(f"--sweep {field}: no values", f"--sweep {field}=1,2,4")
    if options and field in options:
        raise HmxError(f"{field} is swept and given too", f"leave --{field.replace('_', '-')} out")
    return tuple(compute_config(source, {**(options or {}), field: value}, asks) for value in values)


class Fixed(NamedTuple):
    """The nearest configuration that `hmx train` takes, and what became different, a line each."""

    config: Config
    changes: tuple[str, ...]

    def to_toml(self) -> str:
        """The file, with the changes in comments at its top."""
        head = ["The nearest configuration that fits exactly, for `hmx train --config FILE`.", *self.changes]
        return "".join(f"# {text}\n" for text in head) + codec.to_toml(self.config)


def fix(source: Source, options: Mapping[str, Any] | None = None) -> Fixed:
    """The nearest configuration that violates no rule and that a synchronous rollout fills exactly.

    Raises:
        HmxError: inputs that are no whole numbers, or a configuration that is wrong in more than its sizes.
    """
    inputs, found = batch.read_inputs({**source.raw, **(options or {})})
    if inputs is None or not (source.raw or source.trainer is None):
        _, more = judge(source.trainer, None, changed=False) if source.trainer else (None, [])
        words = "\n".join(f"{p.code}: {p.message}" for p in [*found, *more])
        raise HmxError(words, "only sizes that are whole numbers from 1 can be fixed")
    near = batch.nearest_valid(inputs, bootstrap_rows=source.trainer is not None)
    cfg, extra = trainable(near, source.hypers)
    if problems := derive.problems(cfg):
        raise HmxError("\n".join(line(p) for p in problems), "only sizes can be fixed; mend the rest first")
    old, new = dataclasses.asdict(inputs), dataclasses.asdict(near)
    changes = [f"{name}: {old[name]} -> {new[name]}" for name in INPUT_FIELDS if old[name] != new[name]]
    return Fixed(cfg, (*(changes or ["No size had to change."]), *extra))


def _warnings(inputs: BatchInputs, cfg: Config | None, trained: bool) -> list[BatchProblem]:
    found = batch.batch_warnings(inputs)
    if not trained:
        return found
    return [p for p in found if p.code not in _NOT_FOR_TRAINERS] + (config_warnings(cfg) if cfg else [])


def _suggestions(
    inputs: BatchInputs | None, found: Sequence[BatchProblem], trained: bool
) -> tuple[tuple[str, Any], ...]:
    """The repairs worth listing, those of a trainer's configuration in the order of its problems."""
    if inputs is None or not found:
        return ()
    return tuple(dict.fromkeys(fix for p in found for fix in p.fixes) if trained else batch.suggestions(inputs))


def _unmeasured(source: Source) -> list[str]:
    """Why there is no section on memory, where the environment says its sizes only once it is built."""
    if source.trainer is None or not extra_of(source.trainer.env.id) or facts_known(source.trainer.env):
        return []
    name = source.trainer.env.id
    return [f"memory is left out: the sizes of {name} are known once it is built, as by hmx train --dry-run"]


def _memory(source: Source, inputs: BatchInputs, asks: Asks) -> Memory | None:
    derived = batch.derive_batch(inputs)
    if "samples_per_update" not in derived:
        return None
    if source.trainer is None:
        return buffer_memory(derived, PARAMETERS if asks.parameters is None else asks.parameters)
    if not facts_known(source.trainer.env):
        return None
    return trainer_memory(replace(source.trainer, {"env.num_agents": inputs.num_agents}), derived)


def _over_memory(source: Source, inputs: BatchInputs, memory: Memory, asks: Asks, limit: int) -> BatchProblem:
    """The warning, with the largest batch and the largest minibatch that alone bring it below the limit."""
    trained = source.trainer is not None
    horizon = inputs.bptt_horizon
    agents: int = batch.derive_batch(inputs)["total_agents"]

    def fits(field: str, value: int) -> bool:
        held = _memory(source, dataclasses.replace(inputs, **{field: value}), asks)
        return held is not None and held.total <= limit

    unit = math.lcm(inputs.minibatch_size, agents * horizon) if trained else inputs.minibatch_size
    low, high = 0, (inputs.batch_size - 1) // unit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits("batch_size", middle * unit) else (low, middle - 1)
    tried = [("batch_size", low * unit)]
    rows = [d * horizon for d in all_divisors(inputs.batch_size // horizon) if d * horizon < inputs.minibatch_size]
    tried += [("minibatch_size", size) for size in reversed(rows) if fits("minibatch_size", size)][:1]
    fixes = tuple(
        (field, value)
        for field, value in tried
        if value and not batch.batch_problems(dataclasses.replace(inputs, **{field: value}), bootstrap_rows=trained)
    )
    low_bytes, high_bytes = memory.interval
    words = (
        f"about {memory.total:,} bytes ({low_bytes:,} to {high_bytes:,}) are more than the {limit:,} of --gpu-mem; "
        "a buffer whose observations stay in the memory of the host needs less"
    )
    return BatchProblem("W_BUFFER_OVER_MEMORY", words, {"needed": memory.total, "given": limit}, fixes)


def _wall_clock(inputs: BatchInputs, derived: Mapping[str, Any], speeds: Sequence[float]) -> dict[str, Any]:
    """Seconds for all agent steps at each speed; a rollout that overshoots keeps only a part of them."""
    over = derived.get("rollout_overshoot_ratio", 1.0)
    total = inputs.total_timesteps
    rows = [
        {"sps": sps, "seconds": total / sps, "useful_sps": sps / over, "useful_seconds": total * over / sps}
        for sps in speeds
    ]
    return {"agent_steps": total, "overshoot": over, "at": rows}


def _plain(value: Any) -> Any:
    """A value as JSON has it: what TOML can say and JSON cannot becomes text."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value if value is None or isinstance(value, (bool, int, str, list)) else str(value)


def _problem_json(problem: BatchProblem) -> dict[str, Any]:
    return {
        "code": problem.code,
        "message": problem.message,
        "values": {name: _plain(value) for name, value in problem.values.items()},
        "fixes": [{name: value} for name, value in problem.fixes],
    }
