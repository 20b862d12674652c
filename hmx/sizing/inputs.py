"""What the batch equations start from: twelve whole numbers, read with every fault named."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from hmx.config.coerce import show
from hmx.config.names import nearest
from hmx.config.schema import opt
from hmx.config.textfile import quoted

LIMIT = 2**53 - 1
"""The largest value: what JSON readers and 64-bit floats hold exactly."""

_MAX_BITS = 1024  # of a number in a report; Python itself refuses to write more than 4,300 digits


@dataclass(frozen=True, kw_only=True)
class BatchInputs:
    """The inputs of the batch equations, under the names and with the defaults of the Metta training equations."""

    num_agents: int = opt(3, "agents in each environment; the task fixes it", "agents")
    num_workers: int = opt(16, "processes that step environments", "workers")
    batch_size: int = opt(524_288, "agent steps per update", "agent steps")
    minibatch_size: int = opt(16_384, "agent steps per gradient step", "agent steps")
    bptt_horizon: int = opt(64, "steps of one agent in a row of the buffer", "steps")
    update_epochs: int = opt(1, "passes over each batch", "epochs")
    forward_pass_minibatch_target_size: int = opt(4096, "agents wanted in one forward pass of the policy", "agents")
    async_factor: int = opt(2, "groups of environments that take turns", "groups")
    total_timesteps: int = opt(10_000_000_000, "agent steps to train for", "agent steps")
    world_size: int = opt(1, "processes that train together, each with a batch of its own", "ranks")
    obs_width: int = opt(11, "columns of an observation", "cells")
    obs_height: int = opt(11, "rows of an observation", "cells")


class InputField(NamedTuple):
    """One input: its name is the key in JSON, with dashes the option."""

    name: str
    default: int
    doc: str
    unit: str


INPUT_FIELDS: dict[str, InputField] = {
    f.name: InputField(f.name, getattr(BatchInputs(), f.name), f.metadata["doc"], f.metadata["unit"])
    for f in dataclasses.fields(BatchInputs)
}


class BatchProblem(NamedTuple):
    """One thing that is wrong, or worth knowing.

    `values` are the numbers of the violated relation. `fixes` are (field, value) pairs: each, set alone, leaves a
    configuration without any problem; the nearest such value below and the nearest above.
    """

    code: str
    message: str
    values: dict[str, Any]
    fixes: tuple[tuple[str, int], ...] = ()


def read_inputs(raw: Mapping[str, Any]) -> tuple[BatchInputs | None, list[BatchProblem]]:
    """The inputs that `raw` gives, missing ones at their defaults.

    Returns:
        The inputs, or None where a value is no whole number from 1 to 2^53 - 1 or a key is unknown; and what is
        wrong: unknown keys first, then each kind of bad value in the order of the fields.
    """
    found = [_unknown(name) for name in raw if name not in INPUT_FIELDS]
    values = {name: raw.get(name, field.default) for name, field in INPUT_FIELDS.items()}
    faults = {name: fault for name, value in values.items() if (fault := _fault(name, value))}
    for code in ("E_NOT_INT", "E_NOT_POSITIVE", "E_TOO_LARGE"):
        found += [fault for fault in faults.values() if fault.code == code]
    return (None, found) if found else (BatchInputs(**values), [])


def _unknown(name: Any) -> BatchProblem:
    near = nearest(str(name), INPUT_FIELDS)
    words = f"did you mean {near}?" if near else f"known are {', '.join(INPUT_FIELDS)}"
    return BatchProblem("E_UNKNOWN_FIELD", f"no such input: {quoted(str(name))}; {words}", {"field": str(name)})


def _fault(name: str, value: Any) -> BatchProblem | None:
    default = INPUT_FIELDS[name].default
    if isinstance(value, bool) or not isinstance(value, int):
        whole = _meant(value)
        words = f"{name} must be a whole number, not {_quoted(value)}"
        if value is None:
            words = f"{name} has no value, and nothing finds one out by itself: give --{name.replace('_', '-')}"
        return BatchProblem("E_NOT_INT", words, {"field": name, "value": _plain(value)}, ((name, whole or default),))
    if value < 1:
        fixes = tuple((name, works) for works in dict.fromkeys((1, default)))
        words = f"{name} must be 1 or more, not {show(value)}"
        return BatchProblem("E_NOT_POSITIVE", words, {"field": name, "value": _plain(value)}, fixes)
    if value > LIMIT:
        words = f"{name} must be at most {LIMIT:,} (2^53 - 1), not {show(value)}"
        values = {"field": name, "value": show(value), "max": LIMIT}
        return BatchProblem("E_TOO_LARGE", words, values, ((name, default),))
    return None


def _meant(value: Any) -> int | None:
    """The whole number that a float or a text stands for, if it is one that an input may have."""
    if isinstance(value, str):
        digits = value.strip().replace(",", "").replace("_", "")
        value = int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= len(str(LIMIT)) else None
    elif isinstance(value, bool) or not (isinstance(value, float) and value.is_integer()):
        return None
    return int(value) if value is not None and 1 <= value <= LIMIT else None


def _plain(value: Any) -> Any:
    """The value as it was given, or in words where JSON has no such number or Python will not write it."""
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if value is None or isinstance(value, (bool, str)):
        return value
    return (value if value.bit_length() <= _MAX_BITS else show(value)) if isinstance(value, int) else _quoted(value)


def _quoted(value: Any) -> str:
    if isinstance(value, (bool, float)):
        return f"{value}".lower() if isinstance(value, bool) else repr(value)
    return quoted(repr(value)) if isinstance(value, str) else f"a {type(value).__name__}"
