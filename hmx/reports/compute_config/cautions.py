"""Warnings about inputs that the batch equations allow but may not be intended, and values that avoid them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hmx.config.problem import Problem, fix
from hmx.errors import counted
from hmx.reports.compute_config.derived import size
from hmx.reports.compute_config.fit import exact_fit, fit_fixes, fit_text
from hmx.reports.compute_config.inputs import LIMIT, BatchInputs, violation
from hmx.reports.compute_config.repairs import holds

INT32_MAX = 2**31 - 1

FLOAT32_WHOLE = 2**24
"""32-bit floats hold every whole number up to here, so a running sum over that many sequences distinguishes them."""

_LOW_USE = 0.75
"""Share of the forward target below which a forward pass is worth a note."""


def batch_warnings(inputs: BatchInputs) -> list[Problem]:
    """Return warnings about inputs that run but may not be intended, in the order of a report.

    The inputs may violate rules. Each of the `fixes` avoids the warning and violates no rule.
    """
    return [caution._replace(fixes=tuple(_working(inputs, caution))) for caution in _cautions(inputs)]


def low_use(inputs: BatchInputs) -> str:
    """Return a note if rounding down to whole rounds of workers leaves over a quarter of the forward target unused."""
    agents = size(inputs, "agents_per_forward")
    target = inputs.forward_pass_minibatch_target_size
    if agents >= _LOW_USE * target:
        return ""
    return f"a forward pass has {agents:,} agents, {100 * agents / target:.1f} % of the target {target:,}"


def _cautions(inputs: BatchInputs) -> Iterator[Problem]:
    """Yield all warnings; their `fixes` are values to try."""
    minibatch, horizon, groups = inputs.minibatch_size, inputs.bptt_horizon, inputs.async_factor
    envs = size(inputs, "batch_size_envs")
    target = inputs.forward_pass_minibatch_target_size
    agents = envs * inputs.num_agents
    batch = inputs.batch_size
    total = inputs.total_timesteps
    whole = batch // minibatch * minibatch
    if minibatch <= batch and (left := batch % minibatch):
        message = f"batch_size {batch:,} is not a multiple of minibatch_size {minibatch:,}: remainder {left:,}"
        fixes = fix("batch_size", whole, whole + minibatch)
        yield violation("W_BATCH_NOT_MULTIPLE_OF_MINIBATCH", message, {"remainder": left}, fixes)
    if left := batch % horizon:
        message = f"batch_size {batch:,} is not a multiple of bptt_horizon {horizon:,}: {counted(left, 'step')} dropped"
        fixes = fix("batch_size", whole, whole + minibatch)
        yield violation("W_BATCH_NOT_MULTIPLE_OF_HORIZON", message, {"dropped_steps": left}, fixes)
    if agents > target:
        message = (
            f"a forward pass has {agents:,} agents, {agents / target:,.2f} times forward_pass_minibatch_target_size "
            f"{target:,}, because each of the {inputs.num_workers:,} workers needs an environment"
        )
        fixes = (
            ("num_workers", target // inputs.num_agents // groups * groups),
            ("forward_pass_minibatch_target_size", agents),
        )
        yield violation("W_FORWARD_OVER_TARGET", message, {"agents_per_forward": agents, "target": target}, fixes)
    if envs < 2:
        message = "a forward pass has one environment; vectorised environments need at least two"
        fixes = (("num_workers", max(2, groups)), ("forward_pass_minibatch_target_size", 2 * inputs.num_agents))
        yield violation("W_ONE_ENV_PER_FORWARD", message, {"batch_size_envs": envs}, fixes)
    if total < batch:
        message = f"total_timesteps {total:,} is less than batch_size {batch:,}: 0 whole batches"
        fixes = (("batch_size", total // minibatch * minibatch), ("total_timesteps", batch))
        yield violation("W_TOTAL_LT_BATCH", message, {}, fixes)
    if total > INT32_MAX:
        message = f"total_timesteps {total:,} does not fit into 32 bits (2^31 - 1): count steps in 64 bits or in Python"
        yield violation("W_STEP_COUNTER_NEEDS_INT64", message, {"total_timesteps": total})
    sequences = size(inputs, "segments")
    if sequences > FLOAT32_WHOLE:
        message = f"{sequences:,} sequences are more than a sampler that sums in 32-bit floats can tell apart (2^24)"
        fixes = fix("batch_size", FLOAT32_WHOLE * horizon // minibatch * minibatch)
        yield violation("W_TOO_MANY_SEGMENTS_FOR_F32_SAMPLER", message, {"segments": sequences}, fixes)
    yield from _overshoot(inputs)


def _overshoot(inputs: BatchInputs) -> Iterator[Problem]:
    """Yield a warning if groups that take turns collect more than the buffer stores."""
    sequences, agents = size(inputs, "segments"), size(inputs, "total_agents")
    if not inputs.bptt_horizon <= inputs.minibatch_size <= inputs.batch_size or agents > sequences:
        return
    if inputs.num_workers % inputs.async_factor:
        return
    collected, stored = size(inputs, "rollout_collected_agent_steps"), size(inputs, "stored_agent_steps")
    if collected == stored:
        return
    message = (
        f"{agents:,} agents do not divide {sequences:,} sequences: {collected:,} agent steps are collected for a "
        f"buffer of {stored:,}, {collected / stored:,.4g} times as many"
    )
    if exact_fit(inputs):
        message += f"; {fit_text(inputs)}"
    yield violation("W_ROLLOUT_OVERSHOOT", message, {"collected": collected, "stored": stored}, fit_fixes(inputs))


def _working(inputs: BatchInputs, caution: Problem) -> Iterator[tuple[str, int]]:
    """Yield the fixes that avoid a warning and violate no rule."""
    for field, value in dict.fromkeys(caution.fixes):
        if 1 <= value <= LIMIT and value != getattr(inputs, field):
            changed = replace(inputs, **{field: value})
            if holds(changed) and caution.code not in {other.code for other in _cautions(changed)}:
                yield field, value
