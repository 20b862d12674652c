"""Values that repair a configuration: for each field the nearest ones that alone leave no rule violated.

Every value comes from divisors, or from the blocks in which a quotient stays the same; nothing counts its way up. Each
is tried against the rules before it is offered.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

from hmx.config.primes import divisor_above, divisor_below
from hmx.sizing.derived import forward_envs, total_agents
from hmx.sizing.inputs import LIMIT, BatchInputs
from hmx.sizing.rules import holds

_MAX_BLOCKS = 4096
"""Blocks looked at per field: a value further away is no repair that anybody wants."""


class Repair(NamedTuple):
    """The nearest values of one field, below and above its own, that repair the configuration."""

    field: str
    below: int | None
    above: int | None


def repairs(inputs: BatchInputs, *, bootstrap_rows: bool = False) -> list[Repair]:
    """For every field that can repair the configuration alone, the nearest values that do.

    The number of agents is only ever lowered. Batches are whole minibatches, so that a repair drops no steps.

    Args:
        inputs: whole numbers from 1.
        bootstrap_rows: as for `batch_rules.violations`.

    Returns:
        One row per such field; none where no rule is violated.
    """
    if holds(inputs, bootstrap_rows=bootstrap_rows):
        return []

    def checked(field: str, value: int | None) -> int | None:
        if value is None or not 1 <= value <= LIMIT:
            return None
        changed = dataclasses.replace(inputs, **{field: value})
        return value if holds(changed, bootstrap_rows=bootstrap_rows) else None

    tried = [Repair(field, *(checked(field, v) for v in near(inputs))) for field, near in _NEAR.items()]
    return [repair for repair in tried if (repair.below, repair.above) != (None, None)]


def suggestions(inputs: BatchInputs, *, bootstrap_rows: bool = False) -> list[tuple[str, int]]:
    """The repairs worth listing, one (field, value) a line: those of `repairs` that change least.

    Both neighbours of a minibatch, both of a batch (the larger first, which loses nothing), the nearer horizon and the
    nearer number of groups; workers below, and above where the next multiple of the groups will do; fewer agents.
    """
    listed: list[tuple[str, int | None]] = []
    for field, below, above in repairs(inputs, bootstrap_rows=bootstrap_rows):
        if field == "batch_size":
            listed += [(field, above), (field, below)]
        elif field in ("bptt_horizon", "async_factor"):
            listed.append((field, _nearer(getattr(inputs, field), below, above)))
        elif field == "num_workers":
            groups = inputs.async_factor
            next_multiple = (inputs.num_workers // groups + 1) * groups
            short = inputs.num_workers % groups and above == next_multiple
            listed += [(field, below), (field, above if short else None)]
        elif field != "forward_pass_minibatch_target_size":
            listed += [(field, below), (field, above)]
    return [(field, value) for field, value in listed if value is not None]


def _nearer(value: int, below: int | None, above: int | None) -> int | None:
    if below is None or above is None:
        return above if below is None else below
    return below if value - below <= above - value else above


def _minibatches(inputs: BatchInputs) -> tuple[int | None, int | None]:
    rows, horizon = inputs.batch_size // inputs.bptt_horizon, inputs.bptt_horizon
    if rows < 1:
        return None, None
    below = divisor_below(rows, -(-inputs.minibatch_size // horizon))
    above = divisor_above(rows, inputs.minibatch_size // horizon)
    return below and below * horizon, above and above * horizon


def _batches(inputs: BatchInputs) -> tuple[int | None, int | None]:
    minibatch, least = inputs.minibatch_size, total_agents(inputs) * inputs.bptt_horizon
    above = -(-max(least, inputs.batch_size + 1) // minibatch) * minibatch
    return (inputs.batch_size - 1) // minibatch * minibatch, above


def _horizons(inputs: BatchInputs) -> tuple[int | None, int | None]:
    # A divisor T of the minibatch splits the rows of the batch into minibatches where batch % minibatch < T.
    left, most = inputs.batch_size % inputs.minibatch_size, inputs.batch_size // total_agents(inputs)
    horizon, minibatch = inputs.bptt_horizon, inputs.minibatch_size
    return divisor_below(minibatch, min(horizon, most + 1)), divisor_above(minibatch, max(horizon, left))


def _groups(inputs: BatchInputs) -> tuple[int | None, int | None]:
    most = inputs.batch_size // inputs.bptt_horizon // (forward_envs(inputs) * inputs.num_agents)
    groups, workers = inputs.async_factor, inputs.num_workers
    return divisor_below(workers, min(groups, most + 1)), divisor_above(workers, groups)


def _workers(inputs: BatchInputs) -> tuple[int | None, int | None]:
    groups = inputs.async_factor
    room = inputs.batch_size // inputs.bptt_horizon // (groups * inputs.num_agents)
    raw = inputs.forward_pass_minibatch_target_size // inputs.num_agents
    return fewer_workers(inputs.num_workers, groups, raw, room), more_workers(inputs.num_workers, groups, raw, room)


def fewer_workers(workers: int, groups: int, raw: int, room: int) -> int | None:
    """The next number of workers below, a multiple of `groups`, with at most `room` environments per forward.

    Up to `raw` workers there are raw // w x w environments, always more than half of `raw`; beyond, as many as workers.
    """
    w = workers - 1
    for _ in range(_MAX_BLOCKS):
        w = w // groups * groups
        if w < 1 or (w <= raw and 2 * room <= raw):
            return None
        rounds = max(1, raw // w)
        if rounds * w <= room:
            return w
        w = min(w - 1, room // rounds)  # fewer workers make no fewer rounds
    return None


def more_workers(workers: int, groups: int, raw: int, room: int) -> int | None:
    """As `fewer_workers`, but above."""
    w = workers + 1
    for _ in range(_MAX_BLOCKS):
        w = -(-w // groups) * groups
        rounds = max(1, raw // w)
        if rounds * w <= room:
            return w
        if w > raw:
            return None
        w = max(w, raw // rounds) + 1
    return None


def _agents(inputs: BatchInputs) -> tuple[int | None, int | None]:
    workers, target = inputs.num_workers, inputs.forward_pass_minibatch_target_size
    room = inputs.batch_size // inputs.bptt_horizon // inputs.async_factor
    agents = inputs.num_agents - 1
    for _ in range(_MAX_BLOCKS):
        if agents < 1:
            break
        rounds = max(1, target // agents // workers)
        if agents * rounds * workers <= room:
            return agents, None
        agents = min(agents - 1, room // (rounds * workers))  # fewer agents make no fewer rounds
    return None, None


def _targets(inputs: BatchInputs) -> tuple[int | None, int | None]:
    room = inputs.batch_size // inputs.bptt_horizon // (inputs.async_factor * inputs.num_agents)
    largest = largest_target(inputs, room)
    return (largest if largest and largest < inputs.forward_pass_minibatch_target_size else None), None


def largest_target(inputs: BatchInputs, room: int) -> int | None:
    """The largest forward target that asks for at most `room` environments per forward pass, if any does."""
    if room < inputs.num_workers:
        return None
    return (room // inputs.num_workers + 1) * inputs.num_workers * inputs.num_agents - 1


_NEAR: dict[str, Callable[[BatchInputs], tuple[int | None, int | None]]] = {
    "minibatch_size": _minibatches,
    "batch_size": _batches,
    "bptt_horizon": _horizons,
    "async_factor": _groups,
    "num_workers": _workers,
    "num_agents": _agents,
    "forward_pass_minibatch_target_size": _targets,
}
"""Per field the value below and the value above that come into question."""
