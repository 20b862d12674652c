"""The host loop: one compiled chunk of updates after another, and what the host does between two of them."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hmx.agents.types import Algorithm, TrainState
from hmx.runs.signals import SignalGuard, interruptible
from hmx.runs.sinks import Fanout
from hmx.types import Array, Key, Mean, Metrics, Sum

_TRAIN_STREAM = 0
_EVAL_STREAM = 1


class Row(NamedTuple):
    """Where a metric lies in a packed vector: `width` values from `start`."""

    name: str
    kind: type[Any]
    start: int
    width: int


@dataclasses.dataclass
class Chunk:
    """A compiled call of up to `length` updates.

    `call(state, n)` consumes `state` (its buffers are donated), does `n <= length` updates and returns the
    new state and the packed metrics `[length, (seeds,) values]`, of which the first `n` rows hold.
    """

    call: Callable[[TrainState, Any], tuple[TrainState, Array]]
    rows: tuple[Row, ...]
    length: int
    num_seeds: int
    traces: int  # how often `update` has been traced; 1 for the life of the chunk


class LoopResult(NamedTuple):
    """What is left when the loop ends."""

    state: TrainState
    updates: int  # done since the run began, earlier processes included
    signum: int | None  # the signal that ended it early
    seconds: float  # spent inside chunks by this process, compilation excluded
    steps: int  # environment steps taken by this process, over all seeds


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
    with _key_checks(num_seeds):
        return jax.tree.map(lambda leaf: leaf[index], state)


def compile_chunk(algorithm: Algorithm, state: TrainState, length: int, num_seeds: int = 1) -> Chunk:
    """Compiles a chunk for states shaped like `state` (arrays or their shapes).

    The number of updates is an argument of the compiled loop, so one program serves full chunks and the
    shorter last one. That keeps a run bit for bit the same however its updates fall into chunks, which
    programs compiled for different lengths would not promise.
    """
    chunk = Chunk(call=_uncompiled, rows=(), length=length, num_seeds=num_seeds, traces=0)

    def counted(state_t: TrainState) -> tuple[TrainState, Metrics]:
        chunk.traces += 1
        return algorithm.update(state_t)

    # An inner jit: its trace is cached, so that looking at the shapes of the metrics costs no second trace.
    update = jax.jit(counted if num_seeds == 1 else jax.vmap(counted))
    shapes = jax.eval_shape(lambda tree: tree, state)
    with _key_checks(num_seeds):
        metrics = jax.eval_shape(update, shapes)[1]
    chunk.rows = layout(metrics)
    packed = jax.eval_shape(pack, metrics)

    def run(state_t: TrainState, n: Array) -> tuple[TrainState, Array]:
        def body(i: Array, carry: tuple[TrainState, Array]) -> tuple[TrainState, Array]:
            new, out = update(carry[0])
            return new, carry[1].at[i].set(pack(out))

        done: tuple[TrainState, Array] = jax.lax.fori_loop(
            0, n, body, (state_t, jnp.zeros((length, *packed.shape), packed.dtype))
        )
        return done

    with _key_checks(num_seeds):
        lowered = jax.jit(run, donate_argnums=0).lower(shapes, np.int32(0))
    chunk.call = interruptible(lowered.compile)
    return chunk


def _key_checks(num_seeds: int) -> contextlib.AbstractContextManager[object]:
    """No checks of key reuse where there are several seeds.

    The checker, where it is on, takes the transpose that `vmap` puts before a scan for a use, and looking at one
    agent of a trained state for a second one. The same code is checked with one seed.
    """
    debug_key_reuse: Any = jax.debug_key_reuse
    return contextlib.nullcontext() if num_seeds == 1 else debug_key_reuse(False)


def _uncompiled(state: TrainState, n: Any) -> tuple[TrainState, Array]:
    raise RuntimeError("the chunk has not been compiled")


def layout(metrics: Metrics) -> tuple[Row, ...]:
    """Where each accumulator of `metrics` lies in the vector that `pack` makes of it."""
    rows: list[Row] = []
    start = 0
    for name in sorted(metrics):
        width = len(metrics[name])
        rows.append(Row(name, type(metrics[name]), start, width))
        start += width
    return tuple(rows)


def pack(metrics: Metrics) -> Array:
    """All accumulators of one update in one vector, so that one transfer brings a chunk to the host."""
    return jnp.stack([jnp.asarray(leaf, jnp.float32) for name in sorted(metrics) for leaf in metrics[name]], axis=-1)


def reduce_row(rows: tuple[Row, ...], values: np.ndarray[Any, Any]) -> dict[str, float]:
    """The metrics of one update and seed as plain numbers; a metric without data is left out."""
    reduced: dict[str, float] = {}
    for row in rows:
        cell = [float(value) for value in values[row.start : row.start + row.width]]
        if row.kind is Sum:
            reduced[row.name] = cell[0]
        elif cell[1] > 0:
            reduced[row.name] = cell[0] / cell[1] if row.kind is Mean else cell[0]
    return reduced


@dataclasses.dataclass
class Loop:
    """The run from update `first` to update `total`.

    Args:
        chunk: the compiled updates.
        fanout: receives phases and records.
        guard: says when to stop early.
        save: writes a checkpoint of a state at an update.
        seed: of the first agent; the others count up.
        steps_per_update: environment steps per update and seed.
        checkpoint_every: chunks between two checkpoints.
    """

    chunk: Chunk
    fanout: Fanout
    guard: SignalGuard
    save: Callable[[TrainState, int], None]
    seed: int
    steps_per_update: int
    checkpoint_every: int

    def run(self, state: TrainState, first: int, total: int) -> LoopResult:
        """Goes on until `total` updates are done or a signal asks to stop; the state at the end is always saved.

        Raises:
            SinkError: the local record could not be written; a checkpoint was attempted first.
            StopNow: a second signal; nothing more was saved.
        """
        done, chunks, seconds, saved = first, 0, 0.0, -1
        self.fanout.phase("training")
        while done < total and self.guard.requested is None:
            n = min(self.chunk.length, total - done)
            start = time.perf_counter()
            state, packed = self.chunk.call(state, np.int32(n))
            values = interruptible(partial(np.asarray, packed))
            elapsed = time.perf_counter() - start
            seconds += elapsed
            chunks += 1
            try:
                self.fanout.records(self._records(values, done, n, elapsed))
            except Exception:
                self._save(state, done + n)
                raise
            done += n
            if chunks % self.checkpoint_every == 0 and done < total:
                self._save(state, done)
                saved = done
                self.fanout.phase("training")
        if saved != done:
            self._save(state, done)
        steps = (done - first) * self.steps_per_update * self.chunk.num_seeds
        return LoopResult(state, done, self.guard.requested, seconds, steps)

    def _save(self, state: TrainState, update: int) -> None:
        self.fanout.phase("saving")
        self.save(state, update)

    def _records(self, values: np.ndarray[Any, Any], done: int, n: int, elapsed: float) -> Iterator[dict[str, float]]:
        seeds = self.chunk.num_seeds
        rate = n * self.steps_per_update * seeds / max(elapsed, 1e-9)
        now = time.time()
        cells = values.reshape(values.shape[0], seeds, -1)
        for i in range(n):
            update = done + i + 1
            for j in range(seeds):
                yield {
                    "update": update,
                    "env_steps": update * self.steps_per_update,
                    "seed": self.seed + j,
                    "wall_time": now,
                    **reduce_row(self.chunk.rows, cells[i, j]),
                    # exact here, where a float32 of the device counts in steps of 2 from 16.8 million on
                    "train/env_steps": update * self.steps_per_update,
                    "train/steps_per_sec": rate,
                }
