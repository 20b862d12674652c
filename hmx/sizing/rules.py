"""The rules of the batch equations: which relations are violated, with their numbers."""

from __future__ import annotations

from collections.abc import Iterator

from hmx.config.problem import Problem
from hmx.sizing.derived import size
from hmx.sizing.inputs import BatchInputs, violation


def holds(inputs: BatchInputs) -> bool:
    """Return whether there are no `violations`; fast enough to try many values."""
    horizon, batch, minibatch = inputs.bptt_horizon, inputs.batch_size, inputs.minibatch_size
    if not inputs.shortest_horizon <= horizon <= minibatch <= batch:
        return False
    sequences = batch // horizon
    return (
        minibatch % horizon == 0 == sequences % (minibatch // horizon)
        and inputs.num_workers % inputs.async_factor == 0
        and size(inputs, "total_agents") <= sequences
    )


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
        words = f"batch_size {batch:,} is smaller than bptt_horizon {horizon:,}: not even one sequence"
        yield violation("E_BATCH_LT_HORIZON", words, {"batch_size": batch, "bptt_horizon": horizon})
    if per_minibatch < 1:
        words = f"minibatch_size {minibatch:,} is smaller than bptt_horizon {horizon:,}: not even one sequence"
        yield violation("E_MINIBATCH_LT_HORIZON", words, {"minibatch_size": minibatch, "bptt_horizon": horizon})
    elif left := minibatch % horizon:
        words = f"minibatch_size {minibatch:,} is not a multiple of bptt_horizon {horizon:,}: remainder {left:,}"
        yield violation("E_MINIBATCH_NOT_MULTIPLE_OF_HORIZON", words, {"remainder": left})
    if minibatch > batch:
        words = f"minibatch_size {minibatch:,} is larger than batch_size {batch:,}"
        yield violation("E_MINIBATCH_GT_BATCH", words, {"minibatch_size": minibatch, "batch_size": batch})
    elif per_minibatch and (left := sequences % per_minibatch):
        yield violation(
            "E_SEGMENTS_NOT_MULTIPLE",
            f"the {sequences:,} sequences of batch_size {batch:,} cannot be split into minibatches of "
            f"{per_minibatch:,} sequences (minibatch_size {minibatch:,}): remainder {left:,}",
            {"segments": sequences, "minibatch_segments": per_minibatch, "remainder": left},
        )
