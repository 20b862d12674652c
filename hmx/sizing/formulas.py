"""How each derived value of the batch equations comes about, for tables and explanations."""

from __future__ import annotations

from typing import NamedTuple


class Formula(NamedTuple):
    """One row of a table: where it stands, what it is called, what it counts, and how it is computed.

    `formula` is an expression in the names of inputs and derived values, as Python would compute it; after a semicolon
    stands a remark.
    """

    group: str
    label: str
    unit: str
    formula: str


ENVIRONMENTS, BUFFER, LOOP = "environments", "buffer", "loop"
ACCOUNTING, ROLLOUT, MEMORY = "agent-step accounting", "rollout", "memory"

_NOT_FOR_TRAINING = "takes batch_size for environment steps; training does not use it"

_ENVIRONMENTS = {
    "target_batch_size": ("target per forward", "envs", "num_workers if floor_applied else target_batch_size_raw"),
    "batch_size_envs": ("per forward", "envs", "target_batch_size // num_workers * num_workers"),
    "num_envs": ("in all", "envs", "batch_size_envs * async_factor"),
    "envs_per_worker": ("per worker", "envs", "num_envs // num_workers"),
    "agents_per_forward": ("agents per forward", "agents", "batch_size_envs * num_agents"),
    "total_agents": ("agents in all", "agents", "num_envs * num_agents"),
    "target_batch_size_raw": (
        "target before the floor", "envs", "forward_pass_minibatch_target_size // num_agents",
    ),
    "floor_applied": ("floor applied", "", "target_batch_size_raw < max(2, num_workers)"),
    "agents_per_worker": ("agents per worker", "agents", "envs_per_worker * num_agents"),
    "workers_per_batch": ("workers per forward", "workers", "num_workers / async_factor; has to be whole"),
}  # fmt: skip

_AT_LEAST_TWO = {
    "target_batch_size_fixed": (
        "target, 2 at least", "envs", "max(target_batch_size_raw, 2, num_workers); the floor of later versions",
    ),
    "batch_size_envs_fixed": (
        "per forward, 2 at least", "envs", "target_batch_size_fixed // num_workers * num_workers",
    ),
    "num_envs_fixed": ("in all, 2 at least", "envs", "batch_size_envs_fixed * async_factor"),
    "envs_per_worker_fixed": ("per worker, 2 at least", "envs", "num_envs_fixed // num_workers"),
    "agents_per_forward_fixed": ("agents per forward, 2 at least", "agents", "batch_size_envs_fixed * num_agents"),
    "total_agents_fixed": ("agents in all, 2 at least", "agents", "num_envs_fixed * num_agents"),
}  # fmt: skip

_BUFFER = {
    "segments": ("rows", "rows", "batch_size // bptt_horizon"),
    "minibatch_segments": ("rows per minibatch", "rows", "minibatch_size // bptt_horizon"),
    "free_idx_seed": (
        "first free row, by one environment",
        "row",
        "num_agents % segments; counts one environment, the buffer starts at free_idx",
    ),
    "free_idx": ("first free row", "row", "total_agents % segments"),
    "num_minibatches": ("minibatches", "minibatches", "segments // minibatch_segments"),
}

_LOOP = {
    "steps_per_env_seed": ("steps per environment", "env steps", f"batch_size // num_envs; {_NOT_FOR_TRAINING}"),
    "agent_steps_per_batch_seed": (
        "agent steps per batch", "agent steps", f"batch_size * num_agents; {_NOT_FOR_TRAINING}",
    ),
    "experiences_per_gradient_seed": (
        "experiences per gradient", "agent steps",
        f"agent_steps_per_batch_seed // gradient_updates_per_batch; {_NOT_FOR_TRAINING}",
    ),
    "gradient_updates_per_batch": ("gradient steps per batch", "updates", "num_minibatches * update_epochs"),
    "total_epochs": ("batches in the run, whole", "epochs", "total_timesteps // batch_size"),
    "total_epochs_ceil": ("batches to reach the end", "epochs", "ceil(total_timesteps / batch_size)"),
    "gradient_updates_total": ("gradient steps in the run", "updates", "total_epochs * gradient_updates_per_batch"),
    "total_epochs_world": ("batches of all ranks, whole", "epochs", "total_timesteps // (batch_size * world_size)"),
}  # fmt: skip

_ACCOUNTING = {
    "stored_agent_steps": ("stored per batch", "agent steps", "segments * bptt_horizon"),
    "usable_transitions": (
        "with a next step in the row", "agent steps", "segments * (bptt_horizon - 1); all stored, with a bootstrap",
    ),
    "samples_per_update": ("per gradient step", "agent steps", "minibatch_segments * bptt_horizon"),
    "env_steps_per_batch_floor": ("environment steps per batch", "env steps", "stored_agent_steps // num_agents"),
    "agent_steps_per_agent": ("steps per agent", "agent steps", "stored_agent_steps / total_agents"),
    "segments_per_agent": ("rows per agent", "rows", "segments / total_agents"),
    "exact_fit": ("exact fit", "", "segments % total_agents == 0"),
    "mean_reuse": (
        "uses of each step", "times", "gradient_updates_per_batch * minibatch_segments / segments",
    ),
    "expected_coverage_independent_minibatches": (
        "rows seen, minibatches drawn apart", "share",
        "1 - (1 - minibatch_segments / segments) ** gradient_updates_per_batch; 1 when shuffled (prio_alpha 0)",
    ),
    "global_agent_steps_per_epoch": ("stored by all ranks", "agent steps", "stored_agent_steps * world_size"),
}  # fmt: skip

_ROLLOUT = {
    "rollout_recvs": (
        "receives until the rows are full", "receives",
        "((ceil(segments / agents_per_forward) - 1) // async_factor * bptt_horizon + bptt_horizon - 1) * async_factor"
        " + (ceil(segments / agents_per_forward) - 1) % async_factor + 1; groups take turns until all rows are full",
    ),
    "rollout_collected_agent_steps": ("collected per batch", "agent steps", "rollout_recvs * agents_per_forward"),
    "rollout_overshoot_ratio": (
        "collected / stored", "times", "rollout_collected_agent_steps / stored_agent_steps",
    ),
    "epochs_if_collected": (
        "batches to reach the end", "epochs", "ceil(total_timesteps / (rollout_collected_agent_steps * world_size))",
    ),
    "rollout_mixed_rows": (
        "rows of two trajectories", "rows",
        "-ceil(segments / agents_per_forward) % async_factor * agents_per_forward; not given beyond 2^20 stored steps",
    ),
}  # fmt: skip

_MEMORY = {
    "obs_bytes_seed": (
        "observations, one float per cell", "bytes", "segments * bptt_horizon * obs_width * obs_height * 4",
    ),
    "obs_mb": ("the same", "MB", "obs_bytes_seed / 10**6"),
    "obs_mib": ("the same", "MiB", "obs_bytes_seed / 2**20"),
    "scalar_bytes_f32_x8": ("eight floats per step", "bytes", "segments * bptt_horizon * 8 * 4"),
    "minibatch_obs_bytes_seed": (
        "observations of a minibatch", "bytes", "minibatch_segments * bptt_horizon * obs_width * obs_height * 4",
    ),
}  # fmt: skip

FORMULAS: dict[str, Formula] = {
    name: Formula(group, *row)
    for group, rows in (
        (ENVIRONMENTS, {**_ENVIRONMENTS, **_AT_LEAST_TWO}),
        (BUFFER, _BUFFER),
        (LOOP, _LOOP),
        (ACCOUNTING, _ACCOUNTING),
        (ROLLOUT, _ROLLOUT),
        (MEMORY, _MEMORY),
    )
    for name, row in rows.items()
}
"""One row per derived value, in the order of a table; names that end in `_seed` count as in the training equations."""
