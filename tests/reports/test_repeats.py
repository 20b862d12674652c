"""Agents that are in several runs are recognised, and no others."""

from __future__ import annotations

import math

import pytest

from hmx.records.curves import RETURN, AgentCurves, MetricCurves
from hmx.reports.curves import agents_of
from hmx.reports.repeats import repeats

RISING = (0.0, 0.1, 0.3, 0.2)
ZEROS = (0.0, 0.0, 0.0, 0.0)


def agent(returns, seed=None, run="", source="a.csv", steps=None, task="", **columns):
    """An agent that reported returns and other metrics at 64, 128, ... steps."""
    curves = AgentCurves(seed, None)
    curves.run_id = run
    for place, value in enumerate(returns):
        more = {f"train/{name}": values[place] for name, values in columns.items()}
        curves.add((steps or [64 * (k + 1) for k in range(len(returns))])[place], {RETURN: value, **more})
    (found,) = agents_of(MetricCurves((curves,)), "", task, source)
    return found


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (agent(RISING), agent(RISING, source="b.csv")),
        (agent(RISING, 1, "run0"), agent(RISING, 1, "run1")),
        (agent(RISING, 1, "run0"), agent(RISING)),
        (agent(RISING, 1, "run0"), agent((*RISING[:2], 0.9), 1, "run0")),  # resumed with changes
        (agent(ZEROS, 1, "run0"), agent(ZEROS, 1, "run0", "copy")),
        (agent(ZEROS), agent(ZEROS)),  # the same file
        (agent(RISING), agent(RISING[:3], source="b.csv")),  # stopped earlier
        (agent(ZEROS, 1, "run0", entropy=RISING), agent(ZEROS, 1, "run1", entropy=RISING)),
        (agent(RISING, steps_per_sec=(1, 2, 3, 4)), agent(RISING, source="b.csv", steps_per_sec=(4, 3, 2, 1))),
        (agent((0.1, math.nan, 0.3)), agent((0.1, math.nan, 0.3), source="b.csv")),
    ],
)
def test_the_same_agent_is_found_twice(one, other):
    assert len(repeats([one, other])) == len(repeats([other, one])) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (agent(ZEROS), agent(ZEROS, source="b.csv")),  # rewards are sparse
        (agent(ZEROS, 0, "run0"), agent(ZEROS, 0, "run1")),
        (agent(ZEROS, 0, "run0"), agent(ZEROS, 1, "run0")),
        (agent(RISING, 0, "run0"), agent(RISING, 1, "run0")),
        (agent(ZEROS, learning_rate=RISING), agent(ZEROS, source="b.csv", learning_rate=RISING)),
        (agent(ZEROS, num_episodes=RISING), agent(ZEROS, source="b.csv", num_episodes=RISING)),
        (agent(ZEROS, entropy=RISING), agent(ZEROS, source="b.csv", entropy=(0.0, 0.1, 0.3, 0.25))),
        (agent((0.5,)), agent((0.5,), source="b.csv")),
        (agent(RISING), agent(RISING, source="b.csv", steps=[32, 64, 96, 128])),
        (agent(RISING), agent((*RISING[:3], math.nan), source="b.csv")),
        (agent(RISING, 1, "run0", task="corridor"), agent(RISING, 1, "run0", task="recall")),
        (agent(RISING, 1, "run0"), agent((0.05, *RISING[1:]), 1, "run0")),  # a made-up id
    ],
)
def test_different_agents_are_not_merged(one, other):
    assert repeats([one, other]) == repeats([other, one]) == {}


def test_others_repeat_the_longest():
    traces = [agent(RISING[:2]), agent(RISING[:3], source="b.csv"), agent(RISING, source="c.csv")]
    assert repeats(traces) == {0: 2, 1: 2}
