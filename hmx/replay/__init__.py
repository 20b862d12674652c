"""Replay on the device: a ring buffer drawn by TD error and by consequence."""

from hmx.replay.buffer import SELECTIONS, Replay, make_replay
from hmx.replay.experience import Experience, blank, experience
from hmx.replay.nstep import NStep, n_step
from hmx.replay.priority import MIXINGS, NORMS, Options
from hmx.replay.state import Batch, Chosen, ReplayState
from hmx.replay.stats import replay_metrics

__all__ = [
    "MIXINGS",
    "NORMS",
    "SELECTIONS",
    "Batch",
    "Chosen",
    "Experience",
    "NStep",
    "Options",
    "Replay",
    "ReplayState",
    "blank",
    "experience",
    "make_replay",
    "n_step",
    "replay_metrics",
]
