"""Exact fits: every agent fills the same number of whole sequences, so that a rollout wastes nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from hmx.config.divisors import divisor_above, divisor_below
from hmx.errors import HmxError
from hmx.sizing.derived import size
from hmx.sizing.inputs import INPUT_FIELDS, LIMIT, BatchInputs
from hmx.sizing.repairs import fewer_workers, holds, largest_target

_PER_FIELD = 0.5
"""Cost of changing a field, on top of the change itself: as much as 65 % more of another."""

_GROWTH = 1.25
"""Cost of growing the batch, which takes memory, relative to other changes."""

_MAX_TRIED = 24
"""Candidates that are given a minibatch; they come in order of cost, so that later ones seldom win."""


class ExactFit(NamedTuple):
    """A batch that every agent fills with equally many sequences, and a minibatch that splits it."""

    batch_size: int
    minibatch_size: int
    num_minibatches: int
    keeps_minibatch: bool  # whether minibatch_size is unchanged


def is_exact(inputs: BatchInputs) -> bool:
    """Return whether no rule is violated and every agent fills equally many sequences."""
    return holds(inputs) and inputs.batch_size // inputs.bptt_horizon % size(inputs, "total_agents") == 0


def exact_fit(inputs: BatchInputs) -> dict[str, ExactFit]:
    """Return the nearest batches below (`down`) and above (`up`) that fit exactly.

    The result is empty if the inputs fit already or violate a rule. There is no `up` above 2^53 - 1.
    """
    if not holds(inputs) or is_exact(inputs):
        return {}
    unit = size(inputs, "total_agents") * inputs.bptt_horizon
    down = inputs.batch_size // unit * unit
    found: dict[str, ExactFit] = {}
    for way, batch in (("down", down), ("up", down + unit)):
        if batch <= LIMIT:
            minibatch = _minibatch(batch, inputs.bptt_horizon, inputs.minibatch_size)
            found[way] = ExactFit(batch, minibatch, batch // minibatch, minibatch == inputs.minibatch_size)
    return found


def fit_fixes(inputs: BatchInputs) -> tuple[tuple[str, int], ...]:
    """Return the exact fits that take one change, as (field, value) pairs."""
    return tuple(("batch_size", fit.batch_size) for fit in exact_fit(inputs).values() if fit.keeps_minibatch)


def fit_text(inputs: BatchInputs) -> str:
    """Describe the exact fits, for a message."""
    ways = (
        f"batch_size {fit.batch_size:,} with minibatch_size {fit.minibatch_size:,} "
        f"({fit.num_minibatches:,} minibatches)"
        for fit in exact_fit(inputs).values()
    )
    return f"exact fit: {' or '.join(ways)}"


def nearest_valid(inputs: BatchInputs) -> BatchInputs:
    """Return the nearest configuration that violates no rule and fits exactly.

    Nearest is the smallest sum of |ln(new / old)|, plus 0.5 per changed field and a quarter for growth of the batch,
    which takes memory; among candidates that follow from the equations. The number of agents stays, since the task
    fixes it.

    Args:
        inputs: whole numbers from 1, of any size.

    Raises:
        HmxError: more agents than any batch of at most 2^53 - 1 steps holds.
    """
    least = inputs.shortest_horizon
    if inputs.num_agents * least > LIMIT:
        words = f"no batch of at most {LIMIT:,} agent steps holds sequences of {least} steps for so many agents"
        raise HmxError(words, f"num_agents={LIMIT // least} or fewer")
    given = replace(inputs, **{name: min(getattr(inputs, name), LIMIT) for name in INPUT_FIELDS})
    if is_exact(given):
        return given
    best, lowest = given, math.inf
    candidates = {c: _change(given, c) for c in _candidates(given)}
    for candidate in sorted(candidates, key=candidates.__getitem__)[:_MAX_TRIED]:
        if candidates[candidate] >= lowest:
            break
        minibatch = _minibatch(candidate.batch_size, candidate.bptt_horizon, given.minibatch_size)
        fitted = replace(candidate, minibatch_size=minibatch)
        if (change := _change(given, fitted)) < lowest:
            best, lowest = fitted, change
    return best


def _change(old: BatchInputs, new: BatchInputs) -> float:
    pairs = ((getattr(old, name), getattr(new, name)) for name in INPUT_FIELDS)
    change = sum(_PER_FIELD + abs(math.log(b / a)) for a, b in pairs if a != b)
    return change + (_GROWTH - 1.0) * max(0.0, math.log(new.batch_size / old.batch_size))


def _minibatch(batch: int, horizon: int, wanted: int) -> int:
    """Return the minibatch nearest to the wanted one that splits the batch into equal numbers of sequences."""
    sequences = batch // horizon
    near = (divisor_below(sequences, wanted // horizon + 1), divisor_above(sequences, -(-wanted // horizon) - 1))
    return min((d * horizon for d in near if d is not None), key=lambda minibatch: (abs(minibatch - wanted), minibatch))


def _candidates(given: BatchInputs) -> Iterator[BatchInputs]:
    """Yield inputs that fit exactly except for the minibatch; at least one."""
    least, wanted = given.shortest_horizon, given.forward_pass_minibatch_target_size
    for workers, groups in dict.fromkeys(_workers_and_groups(given)):
        grouped = replace(given, num_workers=workers, async_factor=groups)
        rooms = (given.batch_size // max(given.bptt_horizon, least), LIMIT // least)
        largest = (largest_target(grouped, room // (groups * given.num_agents)) for room in rooms)
        for target in dict.fromkeys((wanted, *(min(wanted, most) for most in largest if most is not None))):
            yield from _batches(replace(grouped, forward_pass_minibatch_target_size=target))


def _workers_and_groups(given: BatchInputs) -> Iterator[tuple[int, int]]:
    """Yield workers and groups that divide: each moved to its neighbours, or lowered to what there is room for."""
    least, workers, groups = given.shortest_horizon, given.num_workers, given.async_factor
    if workers % groups == 0:
        yield workers, groups
    else:
        yield from (
            (w, groups) for w in (workers // groups * groups, -(-workers // groups) * groups) if 1 <= w <= LIMIT
        )
    raw = given.forward_pass_minibatch_target_size // given.num_agents
    sequences = given.batch_size // max(given.bptt_horizon, least)
    for most in (sequences, LIMIT // least):
        fewer = fewer_workers(workers + 1, groups, raw, most // (groups * given.num_agents))
        if fewer is not None:
            yield fewer, groups
    fitting = sequences // size(given, "agents_per_forward")
    near = (divisor_below(workers, groups + 1), divisor_above(workers, groups), divisor_below(workers, fitting + 1))
    yield from ((workers, d) for d in near if d is not None)
    yield 1, 1


def _batches(sized: BatchInputs) -> Iterator[BatchInputs]:
    """Yield horizons and batches near the given ones that hold whole sequences, equally many for each agent."""
    least = sized.shortest_horizon
    agents, batch, minibatch = size(sized, "total_agents"), sized.batch_size, sized.minibatch_size
    most = batch // agents
    divisors = (
        divisor_below(minibatch, min(sized.bptt_horizon, most) + 1),
        divisor_above(minibatch, sized.bptt_horizon),
    )
    for horizon in dict.fromkeys((sized.bptt_horizon, most, *divisors, least)):
        if horizon is None or horizon < least:
            continue
        units = [agents * horizon]
        if minibatch % horizon == 0:
            units.append(math.lcm(agents * horizon, minibatch))
        batches = {b for unit in units for b in (batch // unit * unit, batch // unit * unit + unit)}
        yield from (replace(sized, bptt_horizon=horizon, batch_size=b) for b in batches if 1 <= b <= LIMIT)
