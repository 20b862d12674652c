"""Everything that follows from the inputs of the batch equations, in whole numbers of any size.

Names that end in `_seed` count as the Metta training equations do, which take a batch for environment steps; the buffer
of the same equations holds agent steps, and the other names count those. Training uses the agent steps.
"""

from __future__ import annotations

from typing import Any

from hmx.sizing.inputs import BatchInputs

_COUNTED_UP_TO = 2**20
"""Stored agent steps up to which `rollout_mixed_rows` is reported; the published figures end there too."""


def derive_batch(inputs: BatchInputs) -> dict[str, Any]:
    """Every derived value that the inputs allow, in the order of a report.

    Configurations with problems have fewer: without rows there are no minibatches, without room for all agents no
    rollout. `workers_per_batch` is None where the workers do not split into groups, `rollout_mixed_rows` where the
    buffer holds more than 2^20 agent steps (`mixed_rows` counts them all the same).
    """
    rows, minibatch_rows = _rows(inputs)
    values = {**_environments(inputs), **_seed_counts(inputs)}
    if rows < 1:
        return values
    values |= {"free_idx_seed": inputs.num_agents % rows, "free_idx": values["total_agents"] % rows}
    if minibatch_rows < 1 or inputs.minibatch_size > inputs.batch_size:
        return values
    values |= _agent_steps(inputs, values["total_agents"], values["total_epochs"])
    fits = values["total_agents"] <= rows and inputs.num_workers % inputs.async_factor == 0
    if fits:
        values |= _rollout(inputs, values["agents_per_forward"])
    values |= _memory(inputs)
    if fits and inputs.bptt_horizon > 1 and inputs.minibatch_size % inputs.bptt_horizon == 0 == rows % minibatch_rows:
        small = rows * inputs.bptt_horizon <= _COUNTED_UP_TO
        values["rollout_mixed_rows"] = mixed_rows(inputs) if small else None
    return values


def forward_target(inputs: BatchInputs, at_least_two: bool = False) -> int:
    """Environments wanted per forward pass: as many as the target number of agents takes, at least one per worker.

    Args:
        inputs: any.
        at_least_two: raise a single environment to two, as later versions of the equations do.
    """
    raw, floor = inputs.forward_pass_minibatch_target_size // inputs.num_agents, max(2, inputs.num_workers)
    if raw >= floor:
        return raw
    return floor if at_least_two else inputs.num_workers


def forward_envs(inputs: BatchInputs, at_least_two: bool = False) -> int:
    """Environments per forward pass: `forward_target` in whole rounds of workers."""
    return forward_target(inputs, at_least_two) // inputs.num_workers * inputs.num_workers


def total_agents(inputs: BatchInputs) -> int:
    """Agents in all environments together: each takes a row of the buffer at a time."""
    return forward_envs(inputs) * inputs.async_factor * inputs.num_agents


def rollout_recvs(inputs: BatchInputs) -> int:
    """Groups of steps received until every row is complete, where groups take turns and each has to fill its rows.

    The group that completes the last row is the k-th to complete some, k = ceil(rows / agents_per_forward). It does
    so in round p = ceil(k / async_factor), as the j-th of its round, when the groups before it have taken all T steps
    of that round and those after it all but the last.
    """
    groups, horizon = inputs.async_factor, inputs.bptt_horizon
    finished = -(-(inputs.batch_size // horizon) // (forward_envs(inputs) * inputs.num_agents))
    before, place = divmod(finished - 1, groups)
    return before * groups * horizon + (horizon - 1) * groups + place + 1


def mixed_rows(inputs: BatchInputs) -> int:
    """Rows whose last step is older than the others when the rollout stops: those of groups that lacked one step."""
    if inputs.bptt_horizon == 1:
        return 0
    per_forward = forward_envs(inputs) * inputs.num_agents
    finished = -(-(inputs.batch_size // inputs.bptt_horizon) // per_forward)
    return -finished % inputs.async_factor * per_forward


def expected_coverage(rows: int, minibatch_rows: int, draws: int) -> float:
    """The share of rows that some minibatch of a batch has, when each is drawn without regard to the others.

    Args:
        rows: of the buffer.
        minibatch_rows: drawn at a time, without replacement.
        draws: minibatches, over all passes.
    """
    return 1.0 - (1.0 - minibatch_rows / rows) ** draws


def _rows(inputs: BatchInputs) -> tuple[int, int]:
    return inputs.batch_size // inputs.bptt_horizon, inputs.minibatch_size // inputs.bptt_horizon


def _environments(inputs: BatchInputs) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for suffix, at_least_two in (("", False), ("_fixed", True)):
        envs = forward_envs(inputs, at_least_two)
        values[f"target_batch_size{suffix}"] = forward_target(inputs, at_least_two)
        values[f"batch_size_envs{suffix}"] = envs
        values[f"num_envs{suffix}"] = envs * inputs.async_factor
        values[f"envs_per_worker{suffix}"] = envs * inputs.async_factor // inputs.num_workers
        values[f"agents_per_forward{suffix}"] = envs * inputs.num_agents
        values[f"total_agents{suffix}"] = envs * inputs.num_agents * inputs.async_factor
    raw = inputs.forward_pass_minibatch_target_size // inputs.num_agents
    values["target_batch_size_raw"] = raw
    values["floor_applied"] = raw < max(2, inputs.num_workers)
    values["agents_per_worker"] = values["envs_per_worker"] * inputs.num_agents
    workers, left = divmod(inputs.num_workers, inputs.async_factor)
    values["workers_per_batch"] = None if left else workers
    return values


def _seed_counts(inputs: BatchInputs) -> dict[str, Any]:
    rows, minibatch_rows = _rows(inputs)
    return {
        "segments": rows,
        "minibatch_segments": minibatch_rows,
        "steps_per_env_seed": inputs.batch_size // (forward_envs(inputs) * inputs.async_factor),
        "agent_steps_per_batch_seed": inputs.batch_size * inputs.num_agents,
        "total_epochs": inputs.total_timesteps // inputs.batch_size,
        "total_epochs_ceil": -(-inputs.total_timesteps // inputs.batch_size),
    }


def _agent_steps(inputs: BatchInputs, agents: int, epochs: int) -> dict[str, Any]:
    rows, minibatch_rows = _rows(inputs)
    minibatches = rows // minibatch_rows
    updates = minibatches * inputs.update_epochs
    stored = rows * inputs.bptt_horizon
    return {
        "num_minibatches": minibatches,
        "gradient_updates_per_batch": updates,
        "experiences_per_gradient_seed": inputs.batch_size * inputs.num_agents // updates,
        "stored_agent_steps": stored,
        "usable_transitions": rows * (inputs.bptt_horizon - 1),
        "samples_per_update": minibatch_rows * inputs.bptt_horizon,
        "env_steps_per_batch_floor": stored // inputs.num_agents,
        "agent_steps_per_agent": stored / agents,
        "segments_per_agent": rows / agents,
        "exact_fit": rows % agents == 0,
        "gradient_updates_total": epochs * updates,
        "mean_reuse": updates * minibatch_rows / rows,
        "expected_coverage_independent_minibatches": expected_coverage(rows, minibatch_rows, updates),
        "global_agent_steps_per_epoch": stored * inputs.world_size,
        "total_epochs_world": inputs.total_timesteps // (inputs.batch_size * inputs.world_size),
    }


def _rollout(inputs: BatchInputs, per_forward: int) -> dict[str, Any]:
    recvs = rollout_recvs(inputs)
    collected = recvs * per_forward
    return {
        "rollout_recvs": recvs,
        "rollout_collected_agent_steps": collected,
        "rollout_overshoot_ratio": collected / (_rows(inputs)[0] * inputs.bptt_horizon),
        "epochs_if_collected": -(-inputs.total_timesteps // (collected * inputs.world_size)),
    }


def _memory(inputs: BatchInputs) -> dict[str, Any]:
    rows, minibatch_rows = _rows(inputs)
    step = inputs.obs_width * inputs.obs_height * 4
    buffer = rows * inputs.bptt_horizon * step
    return {
        "obs_bytes_seed": buffer,
        "obs_mb": buffer / 10**6,
        "obs_mib": buffer / 2**20,
        "scalar_bytes_f32_x8": rows * inputs.bptt_horizon * 8 * 4,
        "minibatch_obs_bytes_seed": minibatch_rows * inputs.bptt_horizon * step,
    }
