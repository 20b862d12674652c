"""The inputs of the batch equations: twelve whole numbers, read with every problem named."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from hmx.config.coerce import show, typed_number
from hmx.config.option import opt
from hmx.config.problem import Fixes, Problem, fix
from hmx.config.textfile import quoted
from hmx.errors import nearest

LIMIT = 2**53 - 1
"""The largest value: what JSON readers and 64-bit floats hold exactly."""

Scalar = bool | int | float | str | None

_PANEL = "Sizes"
_GROUPED = re.compile(r"(?<=\d),(?=\d{3}(\D|$))")  # a comma between groups of three digits
_MAX_BITS = 1024  # of a number in a report; Python itself refuses to write more than 4,300 digits


@dataclass(frozen=True, kw_only=True)
class BatchInputs:
    """The inputs of the batch equations, under the names and with the defaults of the Metta training equations."""

    num_agents: int = opt(3, "agents in each environment; the task fixes it", "agents", panel=_PANEL)
    num_workers: int = opt(16, "processes that step environments", "workers", panel=_PANEL)
    batch_size: int = opt(524_288, "agent steps per update", "agent steps", panel=_PANEL)
    minibatch_size: int = opt(16_384, "agent steps per gradient step", "agent steps", panel=_PANEL)
    bptt_horizon: int = opt(64, "steps per training sequence", "steps", panel=_PANEL)
    update_epochs: int = opt(1, "passes over each batch", "epochs", panel=_PANEL)
    forward_pass_minibatch_target_size: int = opt(
        4096, "target number of agents in one forward pass", "agents", flag="--forward-target", panel=_PANEL
    )
    async_factor: int = opt(2, "groups of environments that take turns", "groups", panel=_PANEL)
    total_timesteps: int = opt(10_000_000_000, "agent steps to train for", "agent steps", panel=_PANEL)
    world_size: int = opt(1, "processes that train together, each with its own batch", "processes", panel=_PANEL)
    obs_width: int = opt(11, "columns of an observation", "cells", panel=_PANEL)
    obs_height: int = opt(11, "rows of an observation", "cells", panel=_PANEL)

    shortest_horizon: ClassVar[int] = 2
    """Steps of the shortest sequence that can be learned from: the last step needs the value of the next one."""

    forward_unit: ClassVar[str] = "num_workers"
    """Formula of the number of environments that a forward pass holds whole multiples of."""


@dataclass(frozen=True, kw_only=True)
class TrainerInputs(BatchInputs):
    """Inputs for `hmx train`.

    It evaluates the state after each sequence, and so can learn from a single step. A forward pass holds the
    environments of one group of workers, whatever their number in each worker.
    """

    shortest_horizon: ClassVar[int] = 1
    forward_unit: ClassVar[str] = "max(1, num_workers // async_factor)"


INPUT_FIELDS = {f.name: f for f in dataclasses.fields(BatchInputs)}
DEFAULTS: dict[str, int] = dict(vars(BatchInputs()))


def read_inputs(raw: Mapping[str, object], kind: type[BatchInputs] = BatchInputs) -> BatchInputs | list[Problem]:
    """Check values and return them as inputs; missing ones take their defaults.

    Returns:
        The inputs; or, where a value is not a whole number from 1 to 2^53 - 1 or a name is unknown, all problems:
        unknown names first, then each kind of bad value in the order of the fields.
    """
    problems = [_unknown(name) for name in raw if name not in INPUT_FIELDS]
    bad = [problem for name, value in raw.items() if name in INPUT_FIELDS and (problem := _check(name, value))]
    order = list(INPUT_FIELDS)
    bad.sort(key=lambda problem: order.index(str(problem.values["field"])))
    for code in ("E_NOT_INT", "E_NOT_POSITIVE", "E_TOO_LARGE"):
        problems += [problem for problem in bad if problem.code == code]
    return problems or kind(**{name: value for name, value in raw.items() if isinstance(value, int)})


def violation(code: str, message: str, values: Mapping[str, object], fixes: Fixes = ()) -> Problem:
    """Make the problem of a violated rule, with the numbers of the relation and the values that each repair it."""
    return Problem(code, (), message, fixes, values={name: json_value(value) for name, value in values.items()})


def _unknown(name: str) -> Problem:
    near = nearest(name, INPUT_FIELDS)
    hint = f"did you mean {near}?" if near else f"inputs are {', '.join(INPUT_FIELDS)}"
    return violation("E_UNKNOWN_FIELD", f"no such input: {quoted(name)}; {hint}", {"field": name})


def _check(name: str, value: object) -> Problem | None:
    default = DEFAULTS[name]
    values = {"field": name, "value": value}
    if isinstance(value, bool) or not isinstance(value, int):
        if value is None:
            message = f"{name} has no value and is not detected: give --{name.replace('_', '-')}"
        else:
            message = f"{name} must be a whole number, not {_quoted(value)}"
        return violation("E_NOT_INT", message, values, fix(name, _whole_number(value) or default))
    if value < 1:
        message = f"{name} must be 1 or more, not {show(value)}"
        return violation("E_NOT_POSITIVE", message, values, fix(name, *dict.fromkeys((1, default))))
    if value > LIMIT:
        message = f"{name} must be at most {LIMIT:,} (2^53 - 1), not {show(value)}"
        return violation("E_TOO_LARGE", message, {**values, "value": show(value), "max": LIMIT}, fix(name, default))
    return None


def _whole_number(value: object) -> int | None:
    """Return the valid input that a float or a text stands for, if any."""
    if isinstance(value, str):
        number = typed_number(_GROUPED.sub("_", value.strip()))
        value = number if isinstance(number, int) else None
    elif isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if type(value) is int and 1 <= value <= LIMIT else None


def json_value(value: object) -> Scalar:
    """Return the value as given, or as text where JSON has no such scalar or Python will not write it."""
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (list, tuple)):
        return show(value)
    return (value if value.bit_length() <= _MAX_BITS else show(value)) if isinstance(value, int) else _quoted(value)


def _quoted(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return quoted(repr(value)) if isinstance(value, (str, float)) else f"a {type(value).__name__}"
