"""The rules of the batch equations: which relation is violated, with its numbers and in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from hmx.sizing.derived import forward_envs, total_agents
from hmx.sizing.inputs import BatchInputs


class Finding(NamedTuple):
    """A rule that does not hold: its code, what is wrong in words, and the numbers of the relation."""

    code: str
    message: str
    values: dict[str, Any]


def holds(inputs: BatchInputs, *, bootstrap_rows: bool = False) -> bool:
    """Whether there are no `violations`, quick enough to try many values."""
    horizon, batch, minibatch = inputs.bptt_horizon, inputs.batch_size, inputs.minibatch_size
    if not horizon <= minibatch <= batch:
        return False
    rows = batch // horizon
    return (
        minibatch % horizon == 0 == rows % (minibatch // horizon)
        and total_agents(inputs) <= rows
        and inputs.num_workers % inputs.async_factor == 0
        and (bootstrap_rows or horizon > 1)
    )


def violations(inputs: BatchInputs, *, bootstrap_rows: bool = False) -> Iterator[Finding]:
    """Each rule that does not hold, in the order of a report.

    Args:
        inputs: whole numbers from 1.
        bootstrap_rows: whether the value of the step after a row is known too, so that a row of one step can teach.
    """
    yield from _row_rules(inputs)
    horizon, workers, groups = inputs.bptt_horizon, inputs.num_workers, inputs.async_factor
    rows, agents = inputs.batch_size // horizon, total_agents(inputs)
    if agents > rows:
        envs = f"{forward_envs(inputs):,} environments per forward x async_factor {groups:,}"
        words = (
            f"{envs} x num_agents {inputs.num_agents:,} = {agents:,} agents, each of which needs a row, but batch_size "
            f"{inputs.batch_size:,} // bptt_horizon {horizon:,} = {rows:,} rows"
        )
        yield Finding("E_SEGMENTS_LT_AGENTS", words, {"segments": rows, "total_agents": agents})
    if workers % groups:
        words = f"num_workers {workers:,} do not split into async_factor {groups:,} equal groups"
        values = {"num_workers": workers, "async_factor": groups}
        yield Finding("E_WORKERS_NOT_MULTIPLE_OF_ASYNC", words, values)
    if horizon == 1 and not bootstrap_rows:
        words = "bptt_horizon 1: the last step of each row has no value to learn from, and there is no other"
        yield Finding("E_HORIZON_TOO_SHORT", words, {"bptt_horizon": horizon})


def _row_rules(inputs: BatchInputs) -> Iterator[Finding]:
    horizon, batch, minibatch = inputs.bptt_horizon, inputs.batch_size, inputs.minibatch_size
    rows, minibatch_rows = batch // horizon, minibatch // horizon
    if rows < 1:
        words = f"batch_size {batch:,} is smaller than bptt_horizon {horizon:,}: not one row"
        yield Finding("E_BATCH_LT_HORIZON", words, {"batch_size": batch, "bptt_horizon": horizon})
    if minibatch_rows < 1:
        words = f"minibatch_size {minibatch:,} is smaller than bptt_horizon {horizon:,}: not one row"
        yield Finding("E_MINIBATCH_LT_HORIZON", words, {"minibatch_size": minibatch, "bptt_horizon": horizon})
    elif left := minibatch % horizon:
        words = f"minibatch_size {minibatch:,} is no multiple of bptt_horizon {horizon:,}: {left:,} steps over"
        yield Finding("E_MINIBATCH_NOT_MULTIPLE_OF_HORIZON", words, {"remainder": left})
    if minibatch > batch:
        words = f"minibatch_size {minibatch:,} is larger than batch_size {batch:,}"
        yield Finding("E_MINIBATCH_GT_BATCH", words, {"minibatch_size": minibatch, "batch_size": batch})
    elif minibatch_rows and (left := rows % minibatch_rows):
        words = (
            f"batch_size {batch:,} is {rows:,} rows of {horizon:,} steps, minibatch_size {minibatch:,} is "
            f"{minibatch_rows:,}: the rows do not split into minibatches, {left:,} over"
        )
        values = {"segments": rows, "minibatch_segments": minibatch_rows, "remainder": left}
        yield Finding("E_SEGMENTS_NOT_MULTIPLE", words, values)
