"""A loop with everything it drives, on a disk that is a list."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from hmx.algos.types import Algorithm
from hmx.errors import ExitCode, HmxError
from hmx.runs.chunk import Chunk
from hmx.runs.loop import Loop, LoopResult, NonFiniteUpdate, Reports, init_state
from hmx.runs.saving import Saver
from hmx.runs.signals import SignalGuard
from hmx.runs.sinks import Record, Sink, SinkGroup

FAULTS = ("none", "reward", "loss", "gradient", "parameter")  # as the learner of conftest.py counts them
CLOCK = {"elapsed", "wall_time", "train/steps_per_sec", "train/steps_per_cpu_sec"}


class Memory(Sink):
    name = "memory"

    def __init__(self, stop_at: int = 0, fail_at: int = 0, required: bool = False) -> None:
        self.records: list[dict[str, Any]] = []
        self.phases: list[str] = []
        self.warnings: list[str] = []
        self.stop_at, self.fail_at, self.required = stop_at, fail_at, required

    def phase(self, name: str) -> None:
        self.phases.append(name)

    def warn(self, message: str) -> None:
        self.warnings.append(message)

    def record(self, record: Record) -> None:
        if record["update"] == self.fail_at:
            raise OSError("no space left on device")
        self.records.append(dict(record))
        if record["update"] == self.stop_at:
            signal.raise_signal(signal.SIGINT)


class Disk:
    """Stands in for the disk: remembers what was saved, and can be full at chosen updates."""

    def __init__(self, full_at: tuple[int, ...] = (), hold: Callable[[], Any] = lambda: None) -> None:
        self.saved: list[int] = []
        self.scores: list[float | None] = []
        self.noted: list[int] = []
        self.states: dict[int, Any] = {}
        self.full_at, self.hold = full_at, hold

    def saver(self) -> Saver:
        return Saver(self.prepare, self.noted.append)

    def prepare(self, state: Any, update: int, score: float | None) -> Callable[[], None]:
        copy = bits(state)

        def write() -> None:
            self.hold()
            if update in self.full_at:
                raise HmxError(f"checkpoint {update} cannot be written", "", ExitCode.ARTEFACT)
            self.saved.append(update)
            self.scores.append(score)
            self.states[update] = copy

        return write


class Refusal(HmxError):
    def __init__(self, state: Any, refused: NonFiniteUpdate) -> None:
        super().__init__("refused", "", ExitCode.CHECK_FAILED)
        self.state, self.refused = bits(state), refused


def refuse(state: Any, refused: NonFiniteUpdate) -> Any:
    raise Refusal(state, refused)


def drive(
    chunk: Chunk,
    learner: Algorithm,
    *sinks: Sink,
    total: int,
    state: Any = None,
    first: int = 0,
    every: int = 2,
    disk: Disk | None = None,
    hypers: Any = None,
    skips: bool = False,
    reports: tuple[Reports, ...] = (),
) -> tuple[LoopResult, Disk]:
    disk = disk or Disk()
    state = init_state(learner, 7, chunk.num_seeds) if state is None else state
    with SignalGuard() as guard:
        loop = Loop(
            chunk=chunk,
            hypers=hypers or learner.hypers,
            sink_group=SinkGroup(sinks),
            guard=guard,
            saver=disk.saver(),
            refuse=refuse,
            seed=7,
            steps_per_update=8,
            checkpoint_every=every,
            skips=skips,
            reports=reports,
        )
        return loop.run(state, first, total), disk


def faulty(learner: Algorithm, updates: tuple[int, ...], fault: str, agent: int = -1) -> Callable[[int], Any]:
    """Hyperparameters that make updates (counted from 1) go wrong."""

    def hypers(update: int) -> dict[str, float]:
        bad = {"fault": float(FAULTS.index(fault)), "fault_agent": float(agent)} if update + 1 in updates else {}
        return {**learner.hypers(update), **bad}

    return hypers


def two_agents(learner: Algorithm) -> Any:
    return init_state(learner, 7, 2)._replace(agent=jax.numpy.arange(2, dtype="int32"))


def bits(state: Any) -> list[np.ndarray[Any, Any]]:
    plain = jax.tree.map(
        lambda x: jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x, state
    )
    return [np.array(leaf) for leaf in jax.tree.leaves(plain)]


def same(a: Any, b: Any) -> bool:
    x, y = (t if isinstance(t, list) else bits(t) for t in (a, b))
    return all(p.dtype == q.dtype and p.tobytes() == q.tobytes() for p, q in zip(x, y, strict=True))


def without_clock(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in record.items() if k not in CLOCK} for record in records]
