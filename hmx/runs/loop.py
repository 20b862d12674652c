"""Run compiled chunks of updates, and record, save and stop between them."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Container
from functools import partial
from typing import NamedTuple, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from hmx.algos.types import Algorithm, TrainState
from hmx.config.schema import RunConfig
from hmx.errors import HmxError, one_line
from hmx.runs.chunk import Chunk, Values, key_checks, not_finite, reduce_row
from hmx.runs.clock import RunClock
from hmx.runs.cluster.group import ALONE, Group
from hmx.runs.compilation import compile_for_one_call
from hmx.runs.device_memory import naming_shortages
from hmx.runs.hosted import RolloutStopped
from hmx.runs.lowered import LoweredPrograms
from hmx.runs.saving import Saver
from hmx.runs.signals import SignalGuard, StopNow, interruptible
from hmx.runs.sinks import SinkGroup
from hmx.simulators.pool import SimulatorFailed
from hmx.types import Key

FIRST_CHECKPOINT = 30.0  # seconds of training after which a run without a checkpoint writes one


INIT = "init"  # name of the stored program that makes the initial state
_TRAIN_STREAM = 0
_EVAL_STREAM = 1
_RETURN = "train/mean_episode_return"

Hypers = dict[str, float]
Record = dict[str, float]


class LoopResult(NamedTuple):
    """The result of the loop."""

    state: TrainState
    updates: int  # done since the run began, including earlier processes
    signum: int | None  # the signal that ended it early
    seconds: float  # of this process inside chunks, without compilation
    steps: int  # environment steps of this process, over all seeds
    memory_bytes: int = 0  # of the compiled chunk, on each device


class Reports(NamedTuple):
    """Measurements of one kind between the updates of a run.

    `measure(state, update)` reads the state before that update, and returns metrics per seed for its records.
    `prepare(state)` compiles what it needs, while the updates are compiled.
    """

    updates: Container[int]  # numbers, from 1, of the updates that follow a measurement
    measure: Callable[[TrainState, int], list[Record]]
    phase: str
    what: str  # is measured
    kind: str  # of measurement, with its article
    prepare: Callable[[TrainState], object] = lambda state: None


class NonFiniteUpdate(NamedTuple):
    """An update that was not applied because some of its values are not finite."""

    update: int  # its number in the records, from 1
    names: tuple[str, ...]  # metrics and parameters that are not finite, likely causes first
    records: tuple[Record, ...]  # per seed
    hypers: Hypers


def train_keys(seed: int, num_seeds: int) -> Key:
    """Return the initial key of each agent: `[num_seeds]`, or a single one for one seed.

    Agent i gets the key of a separate run with `seed + i`.
    """
    if num_seeds == 1:
        return jax.random.fold_in(jax.random.key(seed), _TRAIN_STREAM)
    return jax.vmap(lambda s: jax.random.fold_in(jax.random.key(s), _TRAIN_STREAM))(seed + jnp.arange(num_seeds))


def eval_key(seed: int) -> Key:
    """Return the key for evaluation, independent of those of training."""
    return jax.random.fold_in(jax.random.key(seed), _EVAL_STREAM)


def init_state(algorithm: Algorithm, seed: int, num_seeds: int) -> TrainState:
    """Return the initial state of a run, with a leading axis of seeds if there are several."""
    keys = train_keys(seed, num_seeds)
    state: TrainState = compile_init(algorithm, keys, num_seeds)(keys)
    return state


def compile_init(
    algorithm: Algorithm, keys: Key, num_seeds: int, programs: LoweredPrograms | None = None
) -> jax.stages.Compiled:
    """Compile the program that makes the initial state of a run from keys like these."""
    # Under jit every leaf has its own buffer, as donation requires: eager code may alias constants.
    init, program = init_function(algorithm, num_seeds), None
    if programs is not None:
        program = programs.find(INIT, keys) or programs.add(INIT, init, keys)
    lowered = None if program is None else program.lower(keys)
    return compile_for_one_call(init.lower(keys) if lowered is None else lowered)


def abstract_state(
    algorithm: Algorithm, seed: int, num_seeds: int, programs: LoweredPrograms | None = None
) -> TrainState:
    """Return shapes and dtypes of `init_state`, without computing it; it is not traced if it is a stored program."""
    keys = jax.eval_shape(lambda: train_keys(seed, num_seeds))
    program = None if programs is None else programs.find(INIT, keys)
    state: TrainState
    state = jax.eval_shape(init_function(algorithm, num_seeds), keys) if program is None else program.results
    return state


def init_function(algorithm: Algorithm, num_seeds: int) -> jax.stages.Wrapped:
    """Return the function of `jax.jit` that makes the first state from the keys of the seeds."""
    return jax.jit(algorithm.init if num_seeds == 1 else jax.vmap(algorithm.init))


def check_agent(run: RunConfig, index: int) -> None:
    """Refuse the number of an agent that a run does not have."""
    last = run.num_seeds - 1
    if not 0 <= index <= last:
        hint = f"agents are 0 to {last}" if last else "the only agent is 0"
        raise HmxError(f"there is no agent {index} in {run.name}", hint)


def seed_state(state: TrainState, index: int, num_seeds: int) -> TrainState:
    """Return the state of one of several agents."""
    if num_seeds == 1:
        return state
    with key_checks(num_seeds):
        alone: TrainState = _at(state, index)
        return alone


# one program: outside `jit`, JAX would compile one for each shape
_at = jax.jit(lambda state, index: jax.tree.map(lambda leaf: leaf[index], state))


@dataclasses.dataclass
class Loop:
    """Run the updates from `first` to `total`.

    Args:
        chunk: the compiled updates.
        hypers: returns the scheduled hyperparameters of an update, counted from 0.
        sink_group: receives phases and records.
        guard: requests an early stop.
        saver: writes checkpoints.
        refuse: ends the run at an update that is not finite, given the state before it, which has been saved.
        seed: of the first agent; those of the others follow.
        steps_per_update: environment steps per update and seed.
        checkpoint_every: chunks between two checkpoints.
        skips: whether the chunk continues after an update that is not finite.
        reports: measured between updates. A chunk ends early before such an update, without moving checkpoints.
        group: the processes of the run, which make decisions together.
        clock: of the run.
        cpu_seconds: returns the processor time of the run's processes on this host.
    """

    chunk: Chunk
    hypers: Callable[[int], Hypers]
    sink_group: SinkGroup
    guard: SignalGuard
    saver: Saver
    refuse: Callable[[TrainState, NonFiniteUpdate], NoReturn]
    seed: int
    steps_per_update: int
    checkpoint_every: int
    skips: bool = False
    reports: tuple[Reports, ...] = ()
    group: Group = ALONE
    clock: RunClock = dataclasses.field(default_factory=RunClock)
    cpu_seconds: Callable[[], float] = time.process_time
    _stop: int = 0  # the signal for which all processes stop
    _warned: bool = False
    _saved: int = -1  # update of the newest checkpoint
    _again: bool = False  # whether the last write failed and the next one must succeed
    _returns: list[float] = dataclasses.field(default_factory=list)  # mean episode returns since the last checkpoint

    def run(self, state: TrainState, first: int, total: int) -> LoopResult:
        """Run until `total` updates are done or a signal requests a stop, and save the state at the end.

        Raises:
            HmxError: the metrics or a checkpoint cannot be written, there is not enough memory, or the error of
                `refuse`; the last good state was saved first if possible.
            StopNow: a second signal; the state was not saved.
        """
        try:
            return self._run(state, first, total)
        except StopNow:
            raise
        except BaseException:
            # The current write is of a good state, and the process may be about to end.
            with contextlib.suppress(HmxError):
                self.saver.wait()
            raise

    def _run(self, state: TrainState, first: int, total: int) -> LoopResult:
        done, chunks, seconds = first, 0, 0.0
        self._saved = first if first else -1  # the first state of a resumed run is on disk already
        if self.guard.requested is None:
            self.sink_group.phase("training")
        while done < total and not self._is_stopping() and not self._is_ended(done - first):
            measured = self._measure(state, done + 1)
            if self._is_stopping():
                break
            end = min(first + (chunks + 1) * self.chunk.length, total)  # of the chunk, unless a report comes first
            # Do one update first, so that the user soon sees metrics.
            n = 1 if done == first else self._until_report(done, end) - done
            start, cpu = time.perf_counter(), self.cpu_seconds()
            try:
                state, values, good = self._call(state, done, n)
            except RolloutStopped:
                break
            except SimulatorFailed:
                # A program that steps copies has consumed the state.
                if not any(leaf.is_deleted() for leaf in jax.tree.leaves(state)):
                    self._save(state, done, last=True)
                raise
            elapsed, cpu = time.perf_counter() - start, self.cpu_seconds() - cpu
            seconds += elapsed
            records = self._records(values, done, good, elapsed, cpu)
            for record, more in zip(records, measured, strict=False):
                record |= more
            done += good
            chunks += done == end
            self._hand_over(records, state, done)
            if good < n:
                self._end_before(state, done, values[good])
            due = done == end < total and chunks % self.checkpoint_every == 0
            if self._failed(wait=False) or due or self._is_first_due(seconds):
                self._save(state, done)
                self.sink_group.phase("training")
        self._save(state, done, last=True)
        steps = (done - first) * self.steps_per_update * self.chunk.num_seeds
        return LoopResult(
            state, done, self.guard.requested or self._stop or None, seconds, steps, self.chunk.memory_bytes
        )

    def _is_stopping(self) -> bool:
        """Return whether this or another process of the run was requested to stop."""
        self._stop = self.group.all_reduce_max(self._stop or self.guard.requested or 0)
        return self._stop != 0

    def _is_ended(self, done: int) -> bool:
        """Return whether a sink ends the run; only between whole chunks, as also in a run that was never resumed."""
        return done % max(self.chunk.length, 1) == 0 and self.sink_group.ending() is not None

    def _is_first_due(self, seconds: float) -> bool:
        """Return whether the run has no checkpoint after `FIRST_CHECKPOINT` seconds, which a kill would lose."""
        return self._saved < 0 and bool(self.group.all_reduce_max(seconds >= FIRST_CHECKPOINT))

    def _until_report(self, done: int, end: int) -> int:
        """Return the update, at most `end`, after which the next measurement follows."""
        due = (u for u in range(done + 1, end) if any(u + 1 in reports.updates for reports in self.reports))
        return next(due, end)

    def _measure(self, state: TrainState, update: int) -> list[Record]:
        """Return the measurements before the next update, per seed; a failure costs the values, not the run."""
        found: list[Record] = []
        for reports in (each for each in self.reports if update in each.updates):
            self.sink_group.phase(reports.phase)
            try:
                with naming_shortages(f"{reports.phase} {reports.what}"):
                    more = interruptible(partial(reports.measure, state, update))
                found = [a | b for a, b in zip(found, more, strict=True)] if found else more
            except Exception as error:
                if self.guard.requested is None:
                    self.sink_group.warn(f"{reports.kind} is missing: {one_line(error)}")
            self.sink_group.phase("training")
        return found

    def _call(self, state: TrainState, done: int, n: int) -> tuple[TrainState, Values, int]:
        """Run a chunk: return the new state, the metrics `[length, seeds, values]` and the number of updates done."""
        hypers = [self.hypers(done + min(i, n - 1)) for i in range(self.chunk.length)]
        rows = {name: np.array([row[name] for row in hypers], np.float32) for name in hypers[0]}
        with naming_shortages("training"):
            # With several processes the call itself may wait for the others, so it needs a thread. With one process
            # it does not: a thread's first call takes a file handle, and a run without any should fail on writing.
            call = partial(self.chunk.call, state, rows, np.int32(n))
            result = call() if self.group.count == 1 else interruptible(call)
            packed, good = interruptible(lambda: jax.device_get((result.packed, result.done)))
        return result.state, packed.reshape(self.chunk.length, self.chunk.num_seeds, -1), int(good)

    def _hand_over(self, records: list[Record], state: TrainState, done: int) -> None:
        returns = [record.get(_RETURN, math.nan) for record in records]
        self._returns += [value for value in returns if math.isfinite(value)]
        problem: HmxError | None = None
        try:
            self.sink_group.records(records)
        except HmxError as error:
            problem = error
        if self.group.all_reduce_max(problem is not None):
            # A full disk fails both; the first failure is reported.
            with contextlib.suppress(HmxError):
                self._save(state, done, last=True)
            if problem is not None:
                raise problem
            self.group.wait_for_end()

    def _end_before(self, state: TrainState, done: int, values: Values) -> NoReturn:
        """Save the state before an update that is not finite, and call `refuse`."""
        names = [name for cell in values for name in not_finite(self.chunk, cell)]
        records = self._records(values[None], done, 1, math.inf, math.inf)
        try:
            self._save(state, done, last=True)
        except HmxError as error:
            self.sink_group.warn(error.message)
        self.refuse(state, NonFiniteUpdate(done + 1, tuple(dict.fromkeys(names)), tuple(records), self.hypers(done)))

    def _failed(self, wait: bool) -> bool:
        """Return whether the previous write failed; it is then retried with the current state."""
        failed = False
        try:
            if wait:
                self.saver.wait()
            else:
                self.saver.collect()
        except HmxError as error:
            self.sink_group.warn(f"{error.message}; trying again")
            failed = True
        if self.group.all_reduce_max(failed):
            self._saved, self._again = -1, True
        return self._again

    def _save(self, state: TrainState, update: int, last: bool = False) -> None:
        """Start a checkpoint unless there is one; wait for the last one, and for one that is tried again."""
        wait = self._failed(wait=True) or last
        if self._saved != update:
            self.sink_group.phase("saving")
            self.saver.save(state, update, sum(self._returns) / len(self._returns) if self._returns else None)
            self._saved, self._again, self._returns = update, False, []
        if wait:
            self.saver.wait()

    def _records(self, values: Values, done: int, n: int, elapsed: float, cpu: float) -> list[Record]:
        """Return one record per update and seed, for the `n` updates after `done`, which took so many seconds."""
        steps = n * self.steps_per_update * self.chunk.num_seeds
        now = self.clock.now()
        return [
            {
                "update": update,
                "env_steps": update * self.steps_per_update,
                "seed": self.seed + seed,
                **now,
                **reduce_row(self.chunk.rows, values[i, seed]),
                # exact on the host; float32 on the device is not above 16.8 million
                "train/env_steps": update * self.steps_per_update,
                "train/steps_per_sec": steps / max(elapsed, 1e-9),
                "train/steps_per_cpu_sec": steps / max(cpu, 1e-9),
                **{
                    f"train/{name}": value
                    for name, value in self.hypers(update - 1).items()
                    if not isinstance(value, bool)
                },
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
            self.sink_group.warn(f"update {update}: {names[0]} is not finite; such updates are skipped")
        return {"train/skipped_updates": float(bool(names))}
