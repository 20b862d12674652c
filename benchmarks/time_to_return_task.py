"""The task of a worker of `time_to_return.py`, and its answer for a seed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple


class Task(NamedTuple):
    """The training of a worker, and its limits."""

    program: str  # hmx, rejax, purejaxrl, stoix or sb3
    env: str
    settings: dict[str, Any]  # of hmx: preset and sets; of a peer: its own names
    limit: int  # environment steps after which a seed is given up
    seconds: float  # after which it is given up, of the processor, or of the wall clock on an accelerator
    target: float
    episodes: int  # the mean return is that of the last updates in which at least so many ended
    folders: Mapping[str, str] = MappingProxyType({})  # clones of the repositories of peers
    together: int = 1  # seeds that one program trains
    updates: int = 0  # that one call of a program does; 0 leaves the number to the program
    to_end: bool = False  # whether training continues after a seed has arrived


class End(NamedTuple):
    """The time at which a seed reached the threshold, or was abandoned, and its training until that ended."""

    arrived: bool
    cpu: float
    wall: float
    steps: float
    mean_return: float = math.nan  # of the last episodes of training; NaN if too few ended
    all_cpu: float = 0.0
    all_wall: float = 0.0
    all_steps: float = 0.0
