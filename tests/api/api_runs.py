"""Settings of runs of a second."""

from __future__ import annotations

TINY: dict[str, object] = {
    "env.id": "corridor", "env.num_envs": 8, "env.max_steps": 30, "algo.num_steps": 8, "net.hidden": (8,),
    "run.total_steps": 256, "run.updates_per_chunk": 1, "run.eval_episodes": 0, "ppo.num_minibatches": 1,
}  # fmt: skip
