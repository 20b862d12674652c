"""The sizes of an environment, as a value that commands pass along."""

from __future__ import annotations

from typing import NamedTuple


class Sizes(NamedTuple):
    """What checks and reports ask of an environment under its configuration."""

    num_actions: int  # 0 if actions are continuous
    action_dim: int  # numbers of a continuous action; 0 if actions are discrete
    num_agents: int
    max_steps: int  # steps after which an episode is truncated; 0 for never
    features: int  # numbers that a network without cells reads of one agent's observation
    state_bytes: int  # of one environment, all agents together; 0 of a simulator
    simulated: bool = False  # whether it is a simulator, which worker processes step
    value_only: int = 0  # features that only the value function reads
    image: bool = False  # whether observations are images
    statistics: tuple[str, ...] = ()  # wrappers of a simulator that keep running statistics over episodes
