"""The host loop: one compiled chunk of updates after another, and what the host does between two of them."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable
from typing import NamedTuple, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from hmx.agents.types import Algorithm, TrainState
from hmx.errors import HmxError
from hmx.runs.chunk import Chunk, Played, Values, key_checks, not_finite, reduce_row
from hmx.runs.cluster.group import ALONE, Group
from hmx.runs.device_memory import out_of_memory
from hmx.runs.saving import Saver
from hmx.runs.signals import SignalGuard, StopNow, interruptible
from hmx.runs.sinks import Fanout
from hmx.types import Key

_TRAIN_STREAM = 0
_EVAL_STREAM = 1
_RETURN = "train/mean_episode_return"

Hypers = dict[str, float]
Record = dict[str, float]


class LoopResult(NamedTuple):
    """What is left when the loop ends."""

    state: TrainState
    updates: int  # done since the run began, earlier processes included
    signum: int | None  # the signal that ended it early
    seconds: float  # spent inside chunks by this process, compilation excluded
    steps: int  # environment steps taken by this process, over all seeds


class Reports(NamedTuple):
    """Gradient reports of a run: one before every update whose number, from 1, is a multiple of `every`.

    `measure(state, update)` only reads the state before that update, and returns metrics per seed.
    """

    every: int
    measure: Callable[[TrainState, int], list[Record]]


class Refused(NamedTuple):
    """An update that was not applied, since it brought numbers that are not finite."""

    update: int  # its number in the records, from 1
    names: tuple[str, ...]  # metrics and parameters that are not finite, the likeliest cause first
    records: tuple[Record, ...]  # per seed, as they would have been written
    hypers: Hypers


def train_keys(seed: int, num_seeds: int) -> Key:
    """The key each agent starts from: `[num_seeds]`, or a single one for one seed.

    Agent i of several gets the key that a run of its own with `seed + i` would get.
    """
    return _stream(seed, num_seeds, _TRAIN_STREAM)


def eval_keys(seed: int, num_seeds: int) -> Key:
    """Keys for evaluation, independent of those of training."""
    return _stream(seed, num_seeds, _EVAL_STREAM)


def _stream(seed: int, num_seeds: int, stream: int) -> Key:
    if num_seeds == 1:
        return jax.random.fold_in(jax.random.key(seed), stream)
    return jax.vmap(lambda s: jax.random.fold_in(jax.random.key(s), stream))(seed + jnp.arange(num_seeds))


def init_state(algorithm: Algorithm, seed: int, num_seeds: int) -> TrainState:
    """The state of a run that has done nothing yet; a leading axis of seeds where there are several."""
    init = algorithm.init if num_seeds == 1 else jax.vmap(algorithm.init)
    # Distinct buffers for every leaf, as donation demands, come from jit: eager code may alias constants.
    return jax.jit(init)(train_keys(seed, num_seeds))


def abstract_state(algorithm: Algorithm, seed: int, num_seeds: int) -> TrainState:
    """Shapes and dtypes of `init_state`, without computing it."""
    init = algorithm.init if num_seeds == 1 else jax.vmap(algorithm.init)
    return jax.eval_shape(init, jax.eval_shape(lambda: train_keys(seed, num_seeds)))


def seed_state(state: TrainState, index: int, num_seeds: int) -> TrainState:
    """The state of one of the agents trained side by side."""
    if num_seeds == 1:
        return state
    with key_checks(num_seeds):
        return jax.tree.map(lambda leaf: leaf[index], state)


@dataclasses.dataclass
class Loop:
    """The run from update `first` to update `total`.

    Args:
        chunk: the compiled updates.
        hypers: the scheduled hyperparameters of the update of that number, from 0.
        fanout: receives phases and records.
        guard: says when to stop early.
        saver: writes checkpoints.
        refuse: ends the run at an update that was not applied, given the state before it, which is saved by then.
        seed: of the first agent; the others count up.
        steps_per_update: environment steps per update and seed.
        checkpoint_every: chunks between two checkpoints.
        skips: whether the chunk goes on after an update whose numbers are not finite.
        reports: what is measured between updates. A chunk is cut before an update that is reported on; checkpoints
            are where they would be without.
        group: the processes of the run. What only one of them knows, and all must do, is agreed on through it.
    """

    chunk: Chunk
    hypers: Callable[[int], Hypers]
    fanout: Fanout
    guard: SignalGuard
    saver: Saver
    refuse: Callable[[TrainState, Refused], NoReturn]
    seed: int
    steps_per_update: int
    checkpoint_every: int
    skips: bool = False
    reports: Reports | None = None
    group: Group = ALONE
    _stop: int = 0  # the signal that all processes stop for
    _warned: bool = False
    _saved: int = -1  # update of the newest checkpoint
    _again: bool = False  # whether the last write failed, so that the next one has to succeed
    _returns: list[float] = dataclasses.field(default_factory=list)  # mean episode returns since the last checkpoint

    def run(self, state: TrainState, first: int, total: int) -> LoopResult:
        """Goes on until `total` updates are done or a signal asks to stop; the state at the end is always saved.

        Raises:
            HmxError: the local record or a checkpoint could not be written, the memory was not enough, or what
                `refuse` raises; the last good state was saved first where that was possible.
            StopNow: a second signal; nothing more was saved.
        """
        try:
            return self._run(state, first, total)
        except StopNow:
            raise
        except BaseException:
            # A write under way is of a good state, and the process may be about to end.
            with contextlib.suppress(HmxError):
                self.saver.wait()
            raise

    def _run(self, state: TrainState, first: int, total: int) -> LoopResult:
        done, chunks, seconds = first, 0, 0.0
        self._saved = first if first else -1  # what a resumed run begins with is on disk already
        self.fanout.phase("training")
        while done < total and not self._is_stopping():
            measured = self._measure(state, done + 1)
            if self._is_stopping():
                break
            end = min(first + (chunks + 1) * self.chunk.length, total)  # of the chunk, which a report may cut
            n = self._until_report(done, end) - done
            start = time.perf_counter()
            state, values, good = self._call(state, done, n)
            elapsed = time.perf_counter() - start
            seconds += elapsed
            records = self._records(values, done, good, elapsed)
            for record, more in zip(records, measured, strict=False):
                record |= more
            done += good
            chunks += done == end
            self._hand_over(records, state, done)
            if good < n:
                self._end_before(state, done, values[good])
            if self._failed(wait=False) or (done == end < total and chunks % self.checkpoint_every == 0):
                self._save(state, done)
                self.fanout.phase("training")
        self._save(state, done, last=True)
        steps = (done - first) * self.steps_per_update * self.chunk.num_seeds
        return LoopResult(state, done, self.guard.requested or self._stop or None, seconds, steps)

    def _is_stopping(self) -> bool:
        """Whether this process, or another of the run, was asked to stop."""
        self._stop = self.group.highest(self._stop or self.guard.requested or 0)
        return self._stop != 0

    def _until_report(self, done: int, end: int) -> int:
        """How many updates can be done, of `end`, before the one after the next that is reported on."""
        if self.reports is None:
            return end
        every = self.reports.every
        return min(end, ((done + 1) // every + 1) * every - 1)

    def _measure(self, state: TrainState, update: int) -> list[Record]:
        """What is reported on the update to come, per seed; whatever goes wrong costs the report, not the run."""
        if self.reports is None or update % self.reports.every:
            return []
        measure, found = self.reports.measure, []
        self.fanout.phase("measuring")
        try:
            with out_of_memory("measuring the gradient"):
                found = interruptible(lambda: measure(state, update))
        except Exception as error:
            why = error.message if isinstance(error, HmxError) else " ".join(str(error).split())[:300]
            self.fanout.warn(f"a gradient report is missing: {why or type(error).__name__}")
        self.fanout.phase("training")
        return found

    def _call(self, state: TrainState, done: int, n: int) -> tuple[TrainState, Values, int]:
        """One chunk: the new state, what was reported `[length, seeds, values]`, and how many updates were done."""
        hypers = [self.hypers(done + min(i, n - 1)) for i in range(self.chunk.length)]
        rows = {name: np.array([row[name] for row in hypers], np.float32) for name in hypers[0]}
        with out_of_memory("training"):
            # With several processes the call itself may wait for the others. A new thread takes a file handle for its
            # first call, and a run that can have none is to end as one that cannot write.
            played = self._over_all(lambda: self.chunk.call(state, rows, np.int32(n)))
            packed, good = interruptible(lambda: jax.device_get((played.packed, played.done)))
        return played.state, packed.reshape(self.chunk.length, self.chunk.num_seeds, -1), int(good)

    def _over_all(self, play: Callable[[], Played]) -> Played:
        return play() if self.group.count == 1 else interruptible(play)

    def _hand_over(self, records: list[Record], state: TrainState, done: int) -> None:
        returns = [record.get(_RETURN, math.nan) for record in records]
        self._returns += [value for value in returns if math.isfinite(value)]
        problem: HmxError | None = None
        try:
            self.fanout.records(records)
        except HmxError as error:
            problem = error
        if self.group.highest(problem is not None):
            # A full disk fails both; what is to be told is what failed first.
            with contextlib.suppress(HmxError):
                self._save(state, done, last=True)
            if problem is not None:
                raise problem
            self.group.wait_for_end()

    def _end_before(self, state: TrainState, done: int, values: Values) -> NoReturn:
        """Saves the state before an update that was refused, and leaves the rest to `refuse`."""
        names = [name for cell in values for name in not_finite(self.chunk, cell)]
        records = self._records(values[None], done, 1, math.inf)
        try:
            self._save(state, done, last=True)
        except HmxError as error:
            self.fanout.warn(error.message)
        self.refuse(state, Refused(done + 1, tuple(dict.fromkeys(names)), tuple(records), self.hypers(done)))

    def _failed(self, wait: bool) -> bool:
        """Whether the write before has failed; it is then tried once more, with the state as it is now."""
        failed = False
        try:
            self.saver.wait() if wait else self.saver.collect()
        except HmxError as error:
            self.fanout.warn(f"{error.message}; trying once more")
            failed = True
        if self.group.highest(failed):
            self._saved, self._again = -1, True
        return self._again

    def _save(self, state: TrainState, update: int, last: bool = False) -> None:
        """Begins a checkpoint unless there is one; waits for the last, and for one that is tried again."""
        wait = self._failed(wait=True) or last
        if self._saved != update:
            self.fanout.phase("saving")
            self.saver.save(state, update, sum(self._returns) / len(self._returns) if self._returns else None)
            self._saved, self._again, self._returns = update, False, []
        if wait:
            self.saver.wait()

    def _records(self, values: Values, done: int, n: int, elapsed: float) -> list[Record]:
        """One record per update and seed, of the `n` updates after `done`."""
        rate = n * self.steps_per_update * self.chunk.num_seeds / max(elapsed, 1e-9)
        now = time.time()
        return [
            {
                "update": update,
                "env_steps": update * self.steps_per_update,
                "seed": self.seed + seed,
                "wall_time": now,
                **reduce_row(self.chunk.rows, values[i, seed]),
                # exact on the host, where a float32 of the device counts in steps of 2 from 16.8 million on
                "train/env_steps": update * self.steps_per_update,
                "train/steps_per_sec": rate,
                **{f"train/{name}": value for name, value in self.hypers(update - 1).items() if name[0] != "_"},
                **self._skipped(values[i, seed], update),
            }
            for i, update in enumerate(range(done + 1, done + n + 1))
            for seed in range(self.chunk.num_seeds)
        ]

    def _skipped(self, values: Values, update: int) -> Record:
        if not self.skips:
            return {}
        names = not_finite(self.chunk, values)
        if names and not self._warned:
            self._warned = True
            self.fanout.warn(f"update {update}: {names[0]} is not finite; what such an update would teach is left out")
        return {"train/skipped_updates": float(bool(names))}
