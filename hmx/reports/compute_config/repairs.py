"""Values that repair a configuration: for each field the nearest ones that alone leave no rule violated.

Divisors and multiples are tried, nearest first; each value is checked against the rules before it is offered.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import count, islice

from hmx.config.divisors import all_divisors
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

    def first(field: str, values: Iterable[int]) -> int | None:
        tried = (value for value in islice(values, _REACH) if 1 <= value <= LIMIT)
        return next((value for value in tried if holds(dataclasses.replace(inputs, **{field: value}))), None)

    nearest = {field: (first(field, below), first(field, above)) for field, (below, above) in _tried(inputs).items()}
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


_REACH = 256
"""Values tried on each side of a field: one further away is not a useful repair."""


def _tried(inputs: BatchInputs) -> dict[str, tuple[Iterable[int], Iterable[int]]]:
    """Return the values of each field that may repair the configuration, below and above its own, nearest first."""
    horizon, batch, minibatch = inputs.bptt_horizon, inputs.batch_size, inputs.minibatch_size
    agents, workers, groups = inputs.num_agents, inputs.num_workers, inputs.async_factor
    sequences = batch // horizon
    least = size(inputs, "total_agents") * horizon
    room = sequences // (groups * agents)  # environments per forward pass
    largest_target = (room // workers + 1) * workers * agents - 1 if room >= workers else 0
    return {
        "minibatch_size": _divisors(sequences, minibatch, horizon),
        "batch_size": (
            [(batch - 1) // minibatch * minibatch],
            [-(-max(least, batch + 1) // minibatch) * minibatch],
        ),
        "bptt_horizon": _divisors(minibatch, horizon),
        "async_factor": _divisors(workers, groups),
        "num_workers": (
            range((workers - 1) // groups * groups, 0, -groups),
            count((workers // groups + 1) * groups, groups),
        ),
        "num_agents": (_fewer_agents(inputs), ()),
        "forward_pass_minibatch_target_size": (
            [largest_target] if largest_target < inputs.forward_pass_minibatch_target_size else [],
            (),
        ),
    }


def _fewer_agents(inputs: BatchInputs) -> Iterator[int]:
    """Yield fewer agents, without numbers that leave too few sequences: fewer agents have no fewer environments."""
    agents, sequences = inputs.num_agents - 1, inputs.batch_size // inputs.bptt_horizon
    while agents > 0:
        yield agents
        envs = size(dataclasses.replace(inputs, num_agents=agents), "num_envs")
        agents = min(agents - 1, sequences // envs)


def _divisors(n: int, value: int, unit: int = 1) -> tuple[list[int], list[int]]:
    """Return the multiples of `unit` by a divisor of `n` below and above a value, nearest first; none if `n` is 0."""
    found = [divisor * unit for divisor in all_divisors(n)] if n else []
    return found[: bisect_left(found, value)][::-1], found[bisect_right(found, value) :]
