"""The equations from the inputs to every other size: one table of formulas, which is what computes the values.

Names that end in `_seed` count as the Metta training equations do, which take a batch for environment steps; the buffer
of the same equations holds agent steps, and the other names count those. Training uses the agent steps. Whole numbers
are computed as such, of any size.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import CodeType
from typing import Literal, NamedTuple

from hmx.reports.compute_config.inputs import BatchInputs

SizeValue = int | float | bool | None
"""A value of the table; None for a value that is not defined or not counted."""

Group = Literal["environments", "buffer", "updates", "agent steps", "rollout", "memory"]

_SEQUENCES = "segments > 0"
_MINIBATCHES = f"{_SEQUENCES} and minibatch_segments > 0 and minibatch_size <= batch_size"
_ROLLOUT = f"{_MINIBATCHES} and total_agents <= segments and num_workers % async_factor == 0"
_SPLIT = (
    f"{_ROLLOUT} and bptt_horizon > 1 and minibatch_size % bptt_horizon == 0 and segments % minibatch_segments == 0"
)


class Formula(NamedTuple):
    """A value of the table and how it is computed.

    `text` is a Python expression in the names of inputs and of values of earlier rows, compiled once. `{unit}` in the
    table below stands for `BatchInputs.forward_unit`. The value exists only if `condition` holds, an expression
    too; empty always holds.
    """

    name: str
    group: Group
    unit: str
    label: str
    text: str
    remark: str = ""
    condition: str = ""


_NOT_USED = "takes batch_size for environment steps; training does not use it"

_TABLE: tuple[tuple[Group, str, tuple[tuple[str, ...], ...]], ...] = (
    ("environments", "", (
        ("target_batch_size_raw", "envs", "target before the minimum",
         "forward_pass_minibatch_target_size // num_agents"),
        ("floor_applied", "", "minimum applied", "target_batch_size_raw < max(2, {unit})"),
        ("target_batch_size", "envs", "target environments per forward pass",
         "{unit} if floor_applied else target_batch_size_raw"),
        ("batch_size_envs", "envs", "environments per forward pass", "target_batch_size // {unit} * {unit}"),
        ("num_envs", "envs", "environments", "batch_size_envs * async_factor"),
        ("envs_per_worker", "envs", "environments per worker", "num_envs // num_workers"),
        ("agents_per_forward", "agents", "agents per forward pass", "batch_size_envs * num_agents"),
        ("total_agents", "agents", "agents in all environments", "num_envs * num_agents"),
        ("agents_per_worker", "agents", "agents per worker", "envs_per_worker * num_agents"),
        ("workers_per_batch", "workers", "workers per forward pass",
         "num_workers // async_factor if num_workers % async_factor == 0 else None"),
        ("target_batch_size_fixed", "envs", "target per forward pass, at least 2",
         "max(target_batch_size_raw, 2, {unit})", "the minimum of later versions"),
        ("batch_size_envs_fixed", "envs", "per forward pass, at least 2",
         "target_batch_size_fixed // {unit} * {unit}"),
        ("num_envs_fixed", "envs", "environments, at least 2", "batch_size_envs_fixed * async_factor"),
        ("envs_per_worker_fixed", "envs", "per worker, at least 2", "num_envs_fixed // num_workers"),
        ("agents_per_forward_fixed", "agents", "agents per forward pass, at least 2",
         "batch_size_envs_fixed * num_agents"),
        ("total_agents_fixed", "agents", "agents in all, at least 2", "num_envs_fixed * num_agents"),
    )),
    ("buffer", "", (
        ("segments", "sequences", "sequences in the buffer", "batch_size // bptt_horizon"),
        ("minibatch_segments", "sequences", "sequences per minibatch", "minibatch_size // bptt_horizon"),
    )),
    ("buffer", _SEQUENCES, (
        ("free_idx_seed", "index", "first free sequence, for one environment", "num_agents % segments",
         "counts one environment; the buffer starts at free_idx"),
        ("free_idx", "index", "first free sequence", "total_agents % segments"),
    )),
    ("buffer", _MINIBATCHES, (
        ("num_minibatches", "minibatches", "minibatches", "segments // minibatch_segments"),
    )),
    ("updates", "", (
        ("steps_per_env_seed", "env steps", "steps per environment", "batch_size // num_envs", _NOT_USED),
        ("agent_steps_per_batch_seed", "agent steps", "agent steps per batch", "batch_size * num_agents", _NOT_USED),
        ("total_epochs", "batches", "whole batches in the run", "total_timesteps // batch_size"),
        ("total_epochs_ceil", "batches", "batches that reach total_timesteps",
         "ceil_div(total_timesteps, batch_size)"),
    )),
    ("updates", _MINIBATCHES, (
        ("gradient_updates_per_batch", "gradient steps", "gradient steps per batch",
         "num_minibatches * update_epochs"),
        ("experiences_per_gradient_seed", "agent steps", "agent steps per gradient step",
         "agent_steps_per_batch_seed // gradient_updates_per_batch", _NOT_USED),
        ("gradient_updates_total", "gradient steps", "gradient steps in the run",
         "total_epochs * gradient_updates_per_batch"),
        ("total_epochs_world", "batches", "whole batches of all processes",
         "total_timesteps // (batch_size * world_size)"),
    )),
    ("agent steps", _MINIBATCHES, (
        ("stored_agent_steps", "agent steps", "agent steps stored per batch", "segments * bptt_horizon"),
        ("usable_transitions", "agent steps", "agent steps with a next step in the sequence",
         "segments * (bptt_horizon - 1)", "hmx train uses all, since it evaluates the state after each sequence"),
        ("samples_per_update", "agent steps", "agent steps per gradient step", "minibatch_segments * bptt_horizon"),
        ("env_steps_per_batch_floor", "env steps", "environment steps per batch", "stored_agent_steps // num_agents"),
        ("agent_steps_per_agent", "steps", "steps per agent", "stored_agent_steps / total_agents"),
        ("segments_per_agent", "sequences", "sequences per agent", "segments / total_agents"),
        ("exact_fit", "", "exact fit", "segments % total_agents == 0"),
        ("mean_reuse", "times", "uses of each step", "gradient_updates_per_batch * minibatch_segments / segments"),
        ("expected_coverage_independent_minibatches", "share", "sequences seen, if minibatches are drawn independently",
         "1 - (1 - minibatch_segments / segments) ** gradient_updates_per_batch",
         "1 if sequences are shuffled (prio_alpha = 0)"),
        ("global_agent_steps_per_epoch", "agent steps", "agent steps stored by all processes",
         "stored_agent_steps * world_size"),
    )),
    ("rollout", _ROLLOUT, (
        ("rollout_recvs", "receives", "receives until every sequence is complete",
         "((ceil_div(segments, agents_per_forward) - 1) // async_factor * bptt_horizon + bptt_horizon - 1)"
         " * async_factor + (ceil_div(segments, agents_per_forward) - 1) % async_factor + 1",
         "groups take turns until every sequence is complete"),
        ("rollout_collected_agent_steps", "agent steps", "agent steps collected per batch",
         "rollout_recvs * agents_per_forward"),
        ("rollout_overshoot_ratio", "times", "collected / stored",
         "rollout_collected_agent_steps / stored_agent_steps"),
        ("epochs_if_collected", "batches", "batches that reach total_timesteps",
         "ceil_div(total_timesteps, rollout_collected_agent_steps * world_size)"),
    )),
    ("rollout", _SPLIT, (
        ("rollout_mixed_rows", "sequences", "sequences from two trajectories",
         "-ceil_div(segments, agents_per_forward) % async_factor * agents_per_forward"
         " if stored_agent_steps <= 2**20 else None", "not computed for more than 2^20 stored steps"),
    )),
    ("memory", _MINIBATCHES, (
        ("obs_bytes_seed", "bytes", "observations, one float per cell",
         "segments * bptt_horizon * obs_width * obs_height * 4"),
        ("obs_mb", "MB", "the same", "obs_bytes_seed / 10**6"),
        ("obs_mib", "MiB", "the same", "obs_bytes_seed / 2**20"),
        ("scalar_bytes_f32_x8", "bytes", "eight floats per step", "segments * bptt_horizon * 8 * 4"),
        ("minibatch_obs_bytes_seed", "bytes", "observations of a minibatch",
         "minibatch_segments * bptt_horizon * obs_width * obs_height * 4"),
    )),
)  # fmt: skip


@cache
def formulas(forward_unit: str = BatchInputs.forward_unit) -> Mapping[str, Formula]:
    """Return the table for one kind of inputs: a row per value, in the order in which they are computed."""
    return {
        name: Formula(name, group, unit, label, text.format(unit=forward_unit), "".join(remark), condition)
        for group, condition, rows in _TABLE
        for name, unit, label, text, *remark in rows
    }


_FUNCTIONS: dict[str, object] = {"__builtins__": {}, "max": max, "ceil_div": lambda a, b: -(-a // b)}
"""All that a formula may call."""


@cache
def _compiled(text: str) -> CodeType:
    return compile(text, text, "eval")


def _evaluate(text: str, values: dict[str, SizeValue]) -> SizeValue:
    """Return the value of an expression of the table; `values` are those that it may name."""
    found: SizeValue = eval(_compiled(text), _FUNCTIONS, values)  # noqa: S307 - constants of this module
    return found


def derive_batch(inputs: BatchInputs) -> dict[str, SizeValue]:
    """Compute every value of the table that exists for the inputs.

    Configurations with problems have fewer values: without sequences there are no minibatches, without room for all
    agents no rollout.
    """
    values: dict[str, SizeValue] = dict(vars(inputs))
    table = formulas(inputs.forward_unit)
    for name, row in table.items():
        if not row.condition or _evaluate(row.condition, values):
            values[name] = _evaluate(row.text, values)
    return {name: values[name] for name in table if name in values}


def size(inputs: BatchInputs, name: str) -> int:
    """Compute one whole number of the table, and only what it follows from."""
    values: dict[str, SizeValue] = dict(vars(inputs))
    for row in _rows_behind(name, inputs.forward_unit):
        values[row.name] = _evaluate(row.text, values)
    return int(values[name] or 0)


@cache
def _rows_behind(name: str, forward_unit: str) -> tuple[Formula, ...]:
    """Return the rows that a value follows from, its own last."""
    needed, rows = {name}, tuple(formulas(forward_unit).values())
    for row in reversed(rows):
        if row.name in needed:
            needed.update(_compiled(row.text).co_names)
    return tuple(row for row in rows if row.name in needed)
