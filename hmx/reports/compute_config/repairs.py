"""Values that repair a configuration: for each field the nearest ones that alone leave no rule violated.

Every value comes from divisors, or from the blocks in which a quotient stays the same; nothing is searched one by one.
Each value is checked against the rules before it is offered.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from hmx.config.divisors import divisor_above, divisor_below
from hmx.config.problem import Problem
from hmx.reports.compute_config.derived import size
from hmx.reports.compute_config.inputs import LIMIT, BatchInputs, violation


def holds(inputs: BatchInputs) -> bool:
    """Return whether there are no `violations`."""
    return next(violations(inputs), None) is None


def violations(inputs: BatchInputs) -> Iterator[Problem]:
    """Yield every rule that does not hold, in the order of a report and without fixes."""
    yield from _sequence_rules(inputs)
    horizon, workers, groups = inputs.bptt_horizon, inputs.num_workers, inputs.async_factor
    sequences, agents = inputs.batch_size // horizon, size(inputs, "total_agents")
    if 0 < sequences < agents:
        yield violation(
            "E_SEGMENTS_LT_AGENTS",
            f"{size(inputs, 'batch_size_envs'):,} environments per forward pass x async_factor {groups:,} x num_agents "
            f"{inputs.num_agents:,} = {agents:,} agents, and each needs a sequence of its own, but batch_size "
            f"{inputs.batch_size:,} // bptt_horizon {horizon:,} = {sequences:,} sequences",
            {"segments": sequences, "total_agents": agents},
        )
    if workers % groups:
        yield violation(
            "E_WORKERS_NOT_MULTIPLE_OF_ASYNC",
            f"num_workers {workers:,} cannot be split into async_factor {groups:,} equal groups",
            {"num_workers": workers, "async_factor": groups},
        )
    if horizon < inputs.shortest_horizon:
        yield violation(
            "E_HORIZON_TOO_SHORT",
            "bptt_horizon 1: the last step of a sequence has no next value to learn from, and there is no other step",
            {"bptt_horizon": horizon},
        )


def _sequence_rules(inputs: BatchInputs) -> Iterator[Problem]:
    horizon, batch, minibatch = inputs.bptt_horizon, inputs.batch_size, inputs.minibatch_size
    sequences, per_minibatch = batch // horizon, minibatch // horizon
    if sequences < 1:
        message = f"batch_size {batch:,} is smaller than bptt_horizon {horizon:,}: not even one sequence"
        yield violation("E_BATCH_LT_HORIZON", message, {"batch_size": batch, "bptt_horizon": horizon})
    if per_minibatch < 1:
        message = f"minibatch_size {minibatch:,} is smaller than bptt_horizon {horizon:,}: not even one sequence"
        yield violation("E_MINIBATCH_LT_HORIZON", message, {"minibatch_size": minibatch, "bptt_horizon": horizon})
    elif left := minibatch % horizon:
        message = f"minibatch_size {minibatch:,} is not a multiple of bptt_horizon {horizon:,}: remainder {left:,}"
        yield violation("E_MINIBATCH_NOT_MULTIPLE_OF_HORIZON", message, {"remainder": left})
    if minibatch > batch:
        message = f"minibatch_size {minibatch:,} is larger than batch_size {batch:,}"
        yield violation("E_MINIBATCH_GT_BATCH", message, {"minibatch_size": minibatch, "batch_size": batch})
    elif per_minibatch and (left := sequences % per_minibatch):
        yield violation(
            "E_SEGMENTS_NOT_MULTIPLE",
            f"the {sequences:,} sequences of batch_size {batch:,} cannot be split into minibatches of "
            f"{per_minibatch:,} sequences (minibatch_size {minibatch:,}): remainder {left:,}",
            {"segments": sequences, "minibatch_segments": per_minibatch, "remainder": left},
        )


_MAX_BLOCKS = 4096
"""Blocks tried per field: a value further away is not a useful repair."""


Neighbours = tuple[int | None, int | None]  # the nearest values of a field below and above its own, None without one


def batch_problems(inputs: BatchInputs) -> list[Problem]:
    """Return every violated rule, in the order of a report, with the values that repair it.

    A single value that repairs the whole configuration repairs each problem, so all of them have the same `fixes`.
    There are none if two problems have no field in common.
    """
    fixes = tuple((field, value) for field, pair in repairs(inputs).items() for value in pair if value is not None)
    return [problem._replace(fixes=fixes) for problem in violations(inputs)]


def repairs(inputs: BatchInputs) -> dict[str, Neighbours]:
    """Return, for every field that can repair the configuration alone, the nearest values that do.

    The number of agents is only ever lowered. Batches are whole minibatches, so that a repair drops no steps. There are
    no repairs if no rule is violated.
    """
    if holds(inputs):
        return {}

    def checked(field: str, value: int | None) -> int | None:
        if value is None or not 1 <= value <= LIMIT:
            return None
        return value if holds(dataclasses.replace(inputs, **{field: value})) else None

    nearest: dict[str, Neighbours] = {}
    for field, near in _NEAR.items():
        below, above = near(inputs)
        nearest[field] = checked(field, below), checked(field, above)
    return {field: pair for field, pair in nearest.items() if pair != (None, None)}


def suggestions(inputs: BatchInputs) -> list[tuple[str, int]]:
    """Return the repairs worth listing as (field, value): those of `repairs` that change least.

    They are both neighbours of a minibatch, both of a batch (the larger first, since it loses nothing), the nearer
    horizon, the nearer number of groups, fewer workers (or more, if the next multiple of the groups works), and fewer
    agents.
    """
    listed: list[tuple[str, int | None]] = []
    for field, (below, above) in repairs(inputs).items():
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


def _minibatches(inputs: BatchInputs) -> Neighbours:
    sequences, horizon = inputs.batch_size // inputs.bptt_horizon, inputs.bptt_horizon
    if sequences < 1:
        return None, None
    below = divisor_below(sequences, -(-inputs.minibatch_size // horizon))
    above = divisor_above(sequences, inputs.minibatch_size // horizon)
    return below and below * horizon, above and above * horizon


def _batches(inputs: BatchInputs) -> Neighbours:
    minibatch = inputs.minibatch_size
    least = size(inputs, "total_agents") * inputs.bptt_horizon
    above = -(-max(least, inputs.batch_size + 1) // minibatch) * minibatch
    return (inputs.batch_size - 1) // minibatch * minibatch, above


def _horizons(inputs: BatchInputs) -> Neighbours:
    # A divisor T of the minibatch splits the sequences of the batch into minibatches if batch % minibatch < T.
    left, most = inputs.batch_size % inputs.minibatch_size, inputs.batch_size // size(inputs, "total_agents")
    horizon, minibatch = inputs.bptt_horizon, inputs.minibatch_size
    return divisor_below(minibatch, min(horizon, most + 1)), divisor_above(minibatch, max(horizon, left))


def _groups(inputs: BatchInputs) -> Neighbours:
    most = inputs.batch_size // inputs.bptt_horizon // size(inputs, "agents_per_forward")
    groups, workers = inputs.async_factor, inputs.num_workers
    return divisor_below(workers, min(groups, most + 1)), divisor_above(workers, groups)


def _workers(inputs: BatchInputs) -> Neighbours:
    groups = inputs.async_factor
    room = inputs.batch_size // inputs.bptt_horizon // (groups * inputs.num_agents)
    raw = inputs.forward_pass_minibatch_target_size // inputs.num_agents
    return fewer_workers(inputs.num_workers, groups, raw, room), more_workers(inputs.num_workers, groups, raw, room)


def fewer_workers(workers: int, groups: int, raw: int, room: int) -> int | None:
    """Return the next smaller multiple of `groups` workers with at most `room` environments per forward pass.

    Up to `raw` workers there are raw // w x w environments, always more than half of `raw`; above, as many as workers.
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
    """Return the next larger number of workers, see `fewer_workers`."""
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


def _agents(inputs: BatchInputs) -> Neighbours:
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


def _targets(inputs: BatchInputs) -> Neighbours:
    room = inputs.batch_size // inputs.bptt_horizon // (inputs.async_factor * inputs.num_agents)
    largest = largest_target(inputs, room)
    return (largest if largest and largest < inputs.forward_pass_minibatch_target_size else None), None


def largest_target(inputs: BatchInputs, room: int) -> int | None:
    """Return the largest forward target that gives at most `room` environments per forward pass, if there is one."""
    if room < inputs.num_workers:
        return None
    return (room // inputs.num_workers + 1) * inputs.num_workers * inputs.num_agents - 1


_NEAR: dict[str, Callable[[BatchInputs], Neighbours]] = {
    "minibatch_size": _minibatches,
    "batch_size": _batches,
    "bptt_horizon": _horizons,
    "async_factor": _groups,
    "num_workers": _workers,
    "num_agents": _agents,
    "forward_pass_minibatch_target_size": _targets,
}
"""Functions that return the candidates below and above the value of a field."""
