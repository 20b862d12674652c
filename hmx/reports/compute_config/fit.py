"""Exact fits: every agent fills the same number of whole sequences, so that a rollout wastes nothing."""

from __future__ import annotations

import math
from typing import NamedTuple

from hmx.config.divisors import divisor_above, divisor_below
from hmx.reports.compute_config.derived import size
from hmx.reports.compute_config.inputs import LIMIT, BatchInputs
from hmx.reports.compute_config.repairs import holds


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
    fits: dict[str, ExactFit] = {}
    for way, batch in (("down", down), ("up", down + unit)):
        if batch <= LIMIT:
            minibatch = _minibatch(batch, inputs.bptt_horizon, inputs.minibatch_size)
            fits[way] = ExactFit(batch, minibatch, batch // minibatch, minibatch == inputs.minibatch_size)
    return fits


def fit_fixes(inputs: BatchInputs) -> tuple[tuple[str, int], ...]:
    """Return the exact fits that take one change, as (field, value) pairs."""
    return tuple(("batch_size", fit.batch_size) for fit in exact_fit(inputs).values() if fit.keeps_minibatch)


def batch_fits(inputs: BatchInputs) -> tuple[tuple[str, int], ...]:
    """Return the nearest batches that fit exactly and hold whole minibatches, as (field, value) pairs."""
    unit = math.lcm(size(inputs, "total_agents") * inputs.bptt_horizon, inputs.minibatch_size)
    down = inputs.batch_size // unit * unit
    return tuple(("batch_size", batch) for batch in (down, down + unit) if 1 <= batch <= LIMIT)


def fit_text(inputs: BatchInputs) -> str:
    """Describe the exact fits, for a message."""
    ways = (
        f"batch_size {fit.batch_size:,} with minibatch_size {fit.minibatch_size:,} "
        f"({fit.num_minibatches:,} minibatches)"
        for fit in exact_fit(inputs).values()
    )
    return f"exact fit: {' or '.join(ways)}"


def _minibatch(batch: int, horizon: int, wanted: int) -> int:
    """Return the minibatch nearest to the wanted one that splits the batch into equal numbers of sequences."""
    sequences = batch // horizon
    near = (divisor_below(sequences, wanted // horizon + 1), divisor_above(sequences, -(-wanted // horizon) - 1))
    return min((d * horizon for d in near if d is not None), key=lambda minibatch: (abs(minibatch - wanted), minibatch))
