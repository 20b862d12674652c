"""Configurations in which every agent fills the same number of whole rows, so that a rollout wastes nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from hmx.config.primes import divisor_above, divisor_below
from hmx.errors import HmxError
from hmx.sizing.derived import forward_envs, total_agents
from hmx.sizing.inputs import INPUT_FIELDS, LIMIT, BatchInputs
from hmx.sizing.repairs import fewer_workers, largest_target
from hmx.sizing.rules import holds

_PER_FIELD = 0.5
"""What a changed field counts besides its change: as much as 65 % more of another."""

_GROWTH = 1.25
"""What growth of the batch counts, which costs memory, against any other change."""

_MAX_TRIED = 24
"""Candidates completed with a minibatch; they come in order of cost, so that later ones seldom win."""


def is_exact(inputs: BatchInputs, *, bootstrap_rows: bool = False) -> bool:
    """Whether no rule is violated and every agent fills equally many rows."""
    rows = inputs.batch_size // inputs.bptt_horizon
    return holds(inputs, bootstrap_rows=bootstrap_rows) and rows % total_agents(inputs) == 0


def exact_fit(inputs: BatchInputs, *, bootstrap_rows: bool = False) -> dict[str, dict[str, Any]] | None:
    """The nearest batches below (`down`) and above (`up`) that fit, each with a minibatch that splits it.

    Returns:
        Per direction `batch_size`, `minibatch_size`, `num_minibatches` and whether that `keeps_minibatch`; None where
        the inputs fit already or violate a rule. There is no `up` beyond 2^53 - 1.
    """
    if not holds(inputs, bootstrap_rows=bootstrap_rows) or is_exact(inputs, bootstrap_rows=bootstrap_rows):
        return None
    unit = total_agents(inputs) * inputs.bptt_horizon
    down = inputs.batch_size // unit * unit
    found: dict[str, dict[str, Any]] = {}
    for way, batch in (("down", down), ("up", down + unit)):
        if batch <= LIMIT:
            minibatch = _minibatch(batch, inputs.bptt_horizon, inputs.minibatch_size)
            found[way] = {
                "batch_size": batch,
                "minibatch_size": minibatch,
                "num_minibatches": batch // minibatch,
                "keeps_minibatch": minibatch == inputs.minibatch_size,
            }
    return found


def nearest_valid(inputs: BatchInputs, *, bootstrap_rows: bool = False) -> BatchInputs:
    """The nearest configuration that violates no rule and fits exactly.

    Nearest is the smallest sum of |ln(new / old)|, with 0.5 added per changed field and a quarter for growth of the
    batch, which costs memory; among candidates that follow from the equations. The number of agents stays, since the
    task fixes it.

    Args:
        inputs: whole numbers from 1, of any size.
        bootstrap_rows: as for `batch_rules.violations`.

    Raises:
        HmxError: more agents than any batch of at most 2^53 - 1 steps holds.
    """
    least = 1 if bootstrap_rows else 2
    if inputs.num_agents * least > LIMIT:
        words = f"no batch of at most {LIMIT:,} agent steps holds rows of {least} steps for so many agents"
        raise HmxError(words, f"num_agents={LIMIT // least} or fewer")
    given = BatchInputs(**{name: min(getattr(inputs, name), LIMIT) for name in INPUT_FIELDS})
    if is_exact(given, bootstrap_rows=bootstrap_rows):
        return given
    best, lowest = given, math.inf
    candidates = {c: _change(given, c) for c in _candidates(given, least)}
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
    """The minibatch nearest to the wanted one that splits the batch into equal numbers of rows."""
    rows = batch // horizon
    near = (divisor_below(rows, wanted // horizon + 1), divisor_above(rows, -(-wanted // horizon) - 1))
    return min((d * horizon for d in near if d is not None), key=lambda size: (abs(size - wanted), size))


def _candidates(given: BatchInputs, least: int) -> Iterator[BatchInputs]:
    """Inputs that fit exactly once the minibatch does, with horizons from `least`; never none."""
    wanted = given.forward_pass_minibatch_target_size
    for workers, groups in dict.fromkeys(_pairs(given, least)):
        grouped = replace(given, num_workers=workers, async_factor=groups)
        rooms = (given.batch_size // max(given.bptt_horizon, least), LIMIT // least)
        largest = (largest_target(grouped, rows // (groups * given.num_agents)) for rows in rooms)
        for target in dict.fromkeys((wanted, *(min(wanted, size) for size in largest if size is not None))):
            yield from _batches(replace(grouped, forward_pass_minibatch_target_size=target), least)


def _pairs(given: BatchInputs, least: int) -> Iterator[tuple[int, int]]:
    """Workers and groups that go together: each moved to its neighbours, or lowered to what there is room for."""
    workers, groups = given.num_workers, given.async_factor
    if workers % groups == 0:
        yield workers, groups
    else:
        yield from (
            (w, groups) for w in (workers // groups * groups, -(-workers // groups) * groups) if 1 <= w <= LIMIT
        )
    raw = given.forward_pass_minibatch_target_size // given.num_agents
    rows = given.batch_size // max(given.bptt_horizon, least)
    for most in (rows, LIMIT // least):
        fewer = fewer_workers(workers + 1, groups, raw, most // (groups * given.num_agents))
        if fewer is not None:
            yield fewer, groups
    fitting = rows // (forward_envs(given) * given.num_agents)
    near = (divisor_below(workers, groups + 1), divisor_above(workers, groups), divisor_below(workers, fitting + 1))
    yield from ((workers, d) for d in near if d is not None)
    yield 1, 1


def _batches(sized: BatchInputs, least: int) -> Iterator[BatchInputs]:
    """Horizons and batches near the given ones that hold whole rows, equally many for each agent."""
    agents, batch, minibatch = total_agents(sized), sized.batch_size, sized.minibatch_size
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
        sizes = {size for unit in units for size in (batch // unit * unit, batch // unit * unit + unit)}
        yield from (replace(sized, bptt_horizon=horizon, batch_size=size) for size in sizes if 1 <= size <= LIMIT)
