"""Programs that several runs of one process share.

A scheduled hyperparameter is an argument of the compiled updates. So two runs that differ only in such values, and in
what the host alone reads, have the same programs, and the second one need not trace and compile them.
"""

from __future__ import annotations

import jax

from hmx.algos.evaluate import OpenChunks
from hmx.algos.types import Algorithm, TrainState
from hmx.config.schedules import SCHEDULED
from hmx.config.schema import RewardWeights
from hmx.envs.protocol import Env
from hmx.registry.load import Loaded
from hmx.runs.chunk import Chunk
from hmx.runs.lowered import LoweredPrograms

MOST = 8  # configurations whose programs are kept

OF_THE_HOST = (
    "run.name", "run.root", "run.seed", "run.checkpoint_every", "run.keep", "run.keep_best", "run.keep_middle_mb",
    "run.eval_episodes", "run.evaluations", "run.on_finding", "run.max_rollbacks", "run.wandb", "run.wandb_project",
    "run.tensorboard", "run.sink", "run.init_from",
)  # fmt: skip
_OF_SCHEDULES = ("run.total_steps", "algo.lr_warmup", "algo.schedule_rate")


class SharedPrograms:
    """What the runs with one `program_key` share; their first run fills it."""

    def __init__(self) -> None:
        self.parts: tuple[Env, Algorithm, TrainState, LoweredPrograms | None] | None = None  # of its session
        self.init: jax.stages.Compiled | None = None
        self.chunk: Chunk | None = None
        # by episodes, simulations of a decision, reward weights that returns count, and names of policies
        self.players: dict[tuple[int, int | None, RewardWeights, tuple[str, ...]], OpenChunks] = {}


class Programs:
    """The programs of the configurations that this process trained last."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], SharedPrograms] = {}

    def of(self, key: tuple[object, ...]) -> SharedPrograms:
        """Return the programs with a key, and forget those that were used longest ago."""
        shared = self._known.pop(key, None) or SharedPrograms()
        self._known[key] = shared  # as the newest
        while len(self._known) > MOST:
            del self._known[next(iter(self._known))]
        return shared


def program_key(task: Loaded, hypers: frozenset[str], chunk_length: int) -> tuple[object, ...]:
    """Return the values that the programs of a run depend on: equal for two runs that may share them.

    Args:
        task: of the run.
        hypers: names of the scheduled hyperparameters; one that is always 0 may be absent.
        chunk_length: updates of a compiled call.
    """
    entry = task.algorithm
    free = set(OF_THE_HOST)
    if not entry.own:  # user code may read any value
        free.update(_OF_SCHEDULES, *(SCHEDULED[name] for name in entry.schedules))
    return (*((key, value) for key, value in task.values.items() if key not in free), hypers, chunk_length)
