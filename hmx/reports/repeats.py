"""Find agents that are in several runs: a run in a copied folder, or one seed that two runs trained equally.

Statistics over seeds need independent samples, so such an agent counts once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hmx.records.curves import ABSENT, RETURN, AgentCurves
from hmx.records.metrics_table import METRICS

Floats = NDArray[np.float64]

TRACED = frozenset({
    RETURN, "train/entropy", "train/std", "train/approx_kl", "train/grad_norm", "train/value_loss", "train/td_error",
    "train/q_value",
})  # fmt: skip
"""Metrics that differ between agents."""

_COUNTERS = ("update", "env_steps", "elapsed", "wall_time")
_CLOCKS = ("per_sec", "per_cpu_sec", "seconds")  # parts of the names of metrics that differ between equal agents
_OF_LENGTHS = ("train/num_episodes", "train/mean_episode_length", "train/truncated_frac", "train/max_entropy")


class AgentTrace(NamedTuple):
    """The metrics by which an agent is recognised."""

    run: str  # id of its run, or its file
    task: str  # id of its environment; "" if unknown
    seed: int | None
    steps: NDArray[np.int64]  # after each update
    columns: Mapping[str, Floats]


def trace(agent: AgentCurves, source: str, task: str, names: Set[str] | None = None) -> AgentTrace:
    """Return the trace of an agent, with the metrics `names` or all; `source` is the file that it was read from."""
    steps = np.array(agent.steps, np.int64)
    order = np.argsort(steps)
    kept = [name for name in agent.columns if names is None or name in names]
    kept = [name for name in kept if name not in _COUNTERS and not any(part in name for part in _CLOCKS)]
    columns = {name: np.array(agent.columns[name], np.float64)[order] for name in kept}
    return AgentTrace(f"{agent.run_id or source} {agent.run}", task, agent.seed, steps[order], columns)


def repeats(agents: Sequence[AgentTrace]) -> dict[int, int]:
    """Return, for the place of each agent that repeats another one, the place of that other.

    The longest of several equal agents, or the first of equally long ones, is the one that the others repeat.

    Two agents are the same if they have the same run and seed and begin equally (a copy may have been resumed with
    changes since), or if all metrics that both report are bit-equal up to the end of the shorter one. Constant metrics
    prove nothing: on a task with sparse rewards, different agents have equal returns of 0. Nor do schedules and the
    lengths of episodes. Different seeds and tasks are those of different agents.
    """
    found: dict[int, int] = {}
    kept: list[int] = []
    for i in sorted(range(len(agents)), key=lambda place: -len(agents[place].steps)):
        same = next((k for k in kept if _same(agents[i], agents[k])), None)
        if same is None:
            kept.append(i)
        else:
            found[i] = same
    return found


def _same(shorter: AgentTrace, longer: AgentTrace) -> bool:
    if shorter.seed != longer.seed and shorter.seed is not None and longer.seed is not None:
        return False
    if shorter.task != longer.task and shorter.task and longer.task:
        return False
    count, common = len(shorter.steps), shorter.columns.keys() & longer.columns.keys()
    one_run = (shorter.run, shorter.seed) == (longer.run, longer.seed)
    count = min(count, 1) if one_run else count
    if not count or not common or not np.array_equal(shorter.steps[:count], longer.steps[:count]):
        return False
    columns = {name: shorter.columns[name][:count] for name in common}
    equal = all(column.tobytes() == longer.columns[name][:count].tobytes() for name, column in columns.items())
    return equal and (one_run or any(map(_proves, columns, columns.values())))


def _proves(name: str, values: Floats) -> bool:
    """Return whether equal values of a metric show that two agents are the same."""
    if name in _OF_LENGTHS or (name in METRICS and METRICS[name].reduce == "last"):
        return False
    known = values[(values != ABSENT) & ~np.isnan(values)]
    return len(known) > 1 and bool((known != known[0]).any())
