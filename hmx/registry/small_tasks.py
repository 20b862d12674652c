"""Sizes for small tasks, in place of the defaults of the schema, which fit HackMatrix."""

from __future__ import annotations

from collections.abc import Mapping

from hmx.registry.environments import exists, find_environment

NUM_ENVS = 16
MIN_UPDATES = 100
"""Updates that a run makes at least, if its number of steps allows it."""

_STEPS = (4, 64)  # fewest and most steps per environment and update
_REPLAYED_STEPS = 4  # between two rounds of gradient steps on a replay buffer


def is_small(env_id: str) -> bool:
    """Return whether an environment is a small task; your own environments count as such."""
    entry = find_environment(env_id)
    return exists(env_id) if entry is None else entry.small


def small_task_sizes(total_steps: int, replays: bool) -> Mapping[str, int]:
    """Return the sizes with which a small task learns.

    Args:
        total_steps: of the run.
        replays: whether the algorithm learns from a replay buffer.
    """
    if replays:
        return {"env.num_envs": NUM_ENVS, "algo.num_steps": _REPLAYED_STEPS}
    fewest, most = _STEPS
    num_steps = most
    while num_steps > fewest and total_steps < MIN_UPDATES * NUM_ENVS * num_steps:
        num_steps //= 2
    return {"env.num_envs": NUM_ENVS, "algo.num_steps": num_steps}
