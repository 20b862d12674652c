"""A run of HackMatrix that takes ten times as long to compile as to train: tests that train it share its programs."""

from __future__ import annotations

SMALL_HACKMATRIX = {
    "env.num_envs": 64,
    "env.max_steps": 20,
    "algo.num_steps": 16,
    "run.total_steps": 4 * 64 * 16,
    "run.updates_per_chunk": 2,
    "run.eval_episodes": 0,
    "run.evaluations": 0,
    "net.kind": "mlp",
    "net.hidden": (8,),
    "ppo.update_epochs": 1,
    "ppo.num_minibatches": 2,
    "starts.share": 0.5,
    "starts.share_schedule": "linear",
    "starts.share_end": 0.0,
}
