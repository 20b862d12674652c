"""Find agents that are in several runs: a run in a copied folder, or one seed that two runs trained equally.

Statistics over seeds need independent samples, so such an agent counts once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from hmx.records.curves import ABSENT, RETURN
from hmx.records.metrics_table import METRICS
from hmx.reports.curves import AgentMetrics
from hmx.stats.intervals import Floats

TRACED = frozenset({
    RETURN, "train/entropy", "train/std", "train/approx_kl", "train/grad_norm", "train/value_loss", "train/td_error",
    "train/q_value",
})  # fmt: skip
"""Metrics that differ between agents."""

_CLOCKS = ("per_sec", "per_cpu_sec", "seconds")  # parts of metric names that differ between equal agents
_OF_LENGTHS = ("train/num_episodes", "train/mean_episode_length", "train/truncated_frac", "train/max_entropy")


def marked(agents: Sequence[AgentMetrics], traces: Sequence[AgentMetrics]) -> Iterator[AgentMetrics]:
    """Yield each agent with the one that it repeats; `traces` are the same agents with all metrics of `TRACED`."""
    same = repeats(traces)
    for place, agent in enumerate(agents):
        yield replace(agent, repeats=agents[same[place]] if place in same else None)


def repeats(agents: Sequence[AgentMetrics]) -> dict[int, int]:
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


def _same(shorter: AgentMetrics, longer: AgentMetrics) -> bool:
    if shorter.number != longer.number and shorter.number is not None and longer.number is not None:
        return False
    if shorter.task != longer.task and shorter.task and longer.task:
        return False
    count, common = len(shorter.steps), shorter.columns.keys() & longer.columns.keys()
    common = {name for name in common if not any(part in name for part in _CLOCKS)}
    one_run = (shorter.source, shorter.number) == (longer.source, longer.number)
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
