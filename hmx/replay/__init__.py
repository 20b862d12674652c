"""Replay on the device: a ring buffer sampled by TD error and by consequence."""

from hmx.replay.buffer import Replay
from hmx.replay.experience import Experience, blank, experience, n_step
from hmx.replay.state import Chosen, ReplayBatch, ReplayState
from hmx.replay.stats import replay_metrics

__all__ = [
    "Chosen",
    "Experience",
    "Replay",
    "ReplayBatch",
    "ReplayState",
    "blank",
    "experience",
    "n_step",
    "replay_metrics",
]
