"""What the batch equations allow, but is perhaps not meant: the warnings, and single values that avoid them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hmx.sizing.derived import forward_envs, rollout_recvs, total_agents
from hmx.sizing.fit import exact_fit
from hmx.sizing.inputs import LIMIT, BatchInputs
from hmx.sizing.rules import Finding, holds

INT32_MAX = 2**31 - 1

FLOAT32_WHOLE = 2**24
"""Up to here 32-bit floats hold every whole number, so a running sum over that many rows tells each from the next."""

LOW_USE = 0.75
"""Share of the forward target below which a forward pass is worth a remark."""


def cautions(inputs: BatchInputs, *, bootstrap_rows: bool = False) -> Iterator[Finding]:
    """What will run, but perhaps not as meant, in the order of a report; also of inputs that violate rules.

    Args:
        inputs: whole numbers from 1.
        bootstrap_rows: as for `batch_rules.violations`; here it only lets values be suggested for rows of one step.
    """
    yield from _remainders(inputs)
    envs, target = forward_envs(inputs), inputs.forward_pass_minibatch_target_size
    agents, batch, total = envs * inputs.num_agents, inputs.batch_size, inputs.total_timesteps
    if agents > target:
        words = (
            f"a forward pass has {agents:,} agents, {_times(agents, target)} forward_pass_minibatch_target_size "
            f"{target:,}, because each of {inputs.num_workers:,} workers has an environment"
        )
        yield Finding("W_FORWARD_OVER_TARGET", words, {"agents_per_forward": agents, "target": target})
    if envs < 2:
        words = "a forward pass has one environment; vectorised environments need two"
        yield Finding("W_ONE_ENV_PER_FORWARD", words, {"batch_size_envs": envs})
    if total < batch:
        words = f"total_timesteps {total:,} is less than batch_size {batch:,}: 0 whole epochs"
        yield Finding("W_TOTAL_LT_BATCH", words, {})
    if total > INT32_MAX:
        words = f"total_timesteps {total:,} is more than 32 bits hold (2^31 - 1): count steps in 64 bits or in Python"
        yield Finding("W_STEP_COUNTER_NEEDS_INT64", words, {"total_timesteps": total})
    rows = batch // inputs.bptt_horizon
    if rows > FLOAT32_WHOLE:
        words = f"{rows:,} rows are more than a sampler that sums in 32-bit floats can tell apart (2^24)"
        yield Finding("W_TOO_MANY_SEGMENTS_FOR_F32_SAMPLER", words, {"segments": rows})
    yield from _overshoot(inputs, bootstrap_rows)


def low_use(inputs: BatchInputs) -> Finding | None:
    """A remark rather than a warning: rounding down to whole rounds of workers leaves over a quarter of the target."""
    agents, target = forward_envs(inputs) * inputs.num_agents, inputs.forward_pass_minibatch_target_size
    if agents >= LOW_USE * target:
        return None
    words = f"a forward pass has {agents:,} agents, {100 * agents / target:.1f} % of the target {target:,}"
    return Finding("W_FORWARD_UNDER", words, {"agents_per_forward": agents, "target": target})


def remedies(inputs: BatchInputs, code: str, *, bootstrap_rows: bool = False) -> tuple[tuple[str, int], ...]:
    """The (field, value) pairs, each alone, that avoid a warning and violate no rule; the nearest below and above."""
    found = []
    for field, value in _avoiding(inputs, code, bootstrap_rows):
        if 1 <= value <= LIMIT and value != getattr(inputs, field):
            changed = replace(inputs, **{field: value})
            if holds(changed, bootstrap_rows=bootstrap_rows) and code not in {
                caution.code for caution in cautions(changed)
            }:
                found.append((field, value))
    return tuple(dict.fromkeys(found))


def _avoiding(inputs: BatchInputs, code: str, bootstrap_rows: bool) -> Iterator[tuple[str, int]]:
    batch, minibatch, groups = inputs.batch_size, inputs.minibatch_size, inputs.async_factor
    if code in ("W_BATCH_NOT_MULTIPLE_OF_MINIBATCH", "W_BATCH_NOT_MULTIPLE_OF_HORIZON"):
        yield from (("batch_size", batch // minibatch * minibatch + more) for more in (0, minibatch))
    elif code == "W_FORWARD_OVER_TARGET":
        yield "num_workers", inputs.forward_pass_minibatch_target_size // inputs.num_agents // groups * groups
        yield "forward_pass_minibatch_target_size", forward_envs(inputs) * inputs.num_agents
    elif code == "W_ONE_ENV_PER_FORWARD":
        yield "num_workers", max(2, groups)
        yield "forward_pass_minibatch_target_size", 2 * inputs.num_agents
    elif code == "W_TOTAL_LT_BATCH":
        yield "batch_size", inputs.total_timesteps // minibatch * minibatch
        yield "total_timesteps", batch
    elif code == "W_TOO_MANY_SEGMENTS_FOR_F32_SAMPLER":
        yield "batch_size", FLOAT32_WHOLE * inputs.bptt_horizon // minibatch * minibatch
    elif code == "W_ROLLOUT_OVERSHOOT":
        fits = exact_fit(inputs, bootstrap_rows=bootstrap_rows) or {}
        yield from (("batch_size", fit["batch_size"]) for fit in fits.values() if fit["keeps_minibatch"])


def _remainders(inputs: BatchInputs) -> Iterator[Finding]:
    batch, minibatch, horizon = inputs.batch_size, inputs.minibatch_size, inputs.bptt_horizon
    if minibatch <= batch and (left := batch % minibatch):
        words = f"batch_size {batch:,} is no multiple of minibatch_size {minibatch:,}: {left:,} steps over"
        yield Finding("W_BATCH_NOT_MULTIPLE_OF_MINIBATCH", words, {"remainder": left})
    if horizon <= batch and (left := batch % horizon):
        words = f"batch_size {batch:,} is no multiple of bptt_horizon {horizon:,}: {left:,} steps are dropped"
        yield Finding("W_BATCH_NOT_MULTIPLE_OF_HORIZON", words, {"dropped_steps": left})


def _overshoot(inputs: BatchInputs, bootstrap_rows: bool) -> Iterator[Finding]:
    """Only where there is a rollout: minibatches of at least a row, room for all agents, workers in equal groups."""
    rows, agents = inputs.batch_size // inputs.bptt_horizon, total_agents(inputs)
    if not inputs.bptt_horizon <= inputs.minibatch_size <= inputs.batch_size or agents > rows:
        return
    if inputs.num_workers % inputs.async_factor or rows % agents == 0:
        return
    collected, stored = rollout_recvs(inputs) * forward_envs(inputs) * inputs.num_agents, rows * inputs.bptt_horizon
    words = (
        f"{agents:,} agents do not divide {rows:,} rows: groups that take turns collect {collected:,} agent steps, "
        f"{_times(collected, stored)} the {stored:,} of the buffer"
    )
    if fits := exact_fit(inputs, bootstrap_rows=bootstrap_rows):
        ways = (
            f"batch_size {fit['batch_size']:,} with minibatch_size {fit['minibatch_size']:,} "
            f"({fit['num_minibatches']:,} minibatches)"
            for fit in fits.values()
        )
        words += f"; exact fit: {' or '.join(ways)}"
    yield Finding("W_ROLLOUT_OVERSHOOT", words, {"collected": collected, "stored": stored})


def _times(much: int, little: int) -> str:
    return f"{much / little:,.2f} times"
