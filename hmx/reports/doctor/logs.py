"""Turn the log of another program into points that the rules of `hmx doctor` can check."""

from __future__ import annotations

import math
from collections import defaultdict

from hmx.records.curves import ABSENT, RETURN, AgentCurves
from hmx.reports.doctor.history import WINDOW

LENGTH, REWARD, EPISODES = "train/mean_episode_length", "train/mean_reward", "train/num_episodes"
MOST = 200  # points

Point = tuple[int, dict[str, float]]


def points(agent: AgentCurves) -> list[Point]:
    """Return up to 200 points `(environment steps, value by metric)` of a log.

    Programs log metrics at different steps. So the steps are divided into equal parts, at most as many as the metric
    with the fewest values has, and a point has the mean of each metric over a part. Values that are not finite, and
    metrics with fewer than 8 values, are left out. The return and the length of episodes give the mean reward per step.
    """
    columns = {name: _known(agent, name) for name in agent.columns}
    columns = {name: values for name, values in columns.items() if len(values) >= WINDOW}
    if not columns:
        return []
    number = min(MOST, *map(len, columns.values()))
    steps = [step for values in columns.values() for step, _ in values]
    first, width = min(steps), (max(steps) - min(steps)) / number or 1.0
    parts: list[defaultdict[str, list[float]]] = [defaultdict(list) for _ in range(number)]
    for name, values in columns.items():
        for step, value in values:
            parts[min(int((step - first) / width), number - 1)][name].append(value)
    ends = [math.ceil(first + width * (i + 1)) for i in range(number)]
    return [(end, _means(part)) for end, part in zip(ends, parts, strict=True) if part]


def _known(agent: AgentCurves, name: str) -> list[tuple[int, float]]:
    pairs = zip(agent.steps, agent.column(name), strict=True)
    return [(step, value) for step, value in pairs if value != ABSENT and math.isfinite(value)]


def _means(part: dict[str, list[float]]) -> dict[str, float]:
    means = {name: math.fsum(values) / len(values) for name, values in part.items()}
    if RETURN in part:
        means[EPISODES] = float(len(part[RETURN]))  # at least
        if means.get(LENGTH, 0.0) > 0:
            means[REWARD] = means[RETURN] / means[LENGTH]
    return means
