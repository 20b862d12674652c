"""The compiled part of the loop: a chunk of updates, what they report, and the guard against numbers that are none."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hmx.agents.choosing import choose as choose_leaves
from hmx.agents.types import Algorithm, TrainState
from hmx.runs.signals import interruptible
from hmx.types import Array, Mean, Metrics, Sum

Values = np.ndarray[Any, Any]

# Where a number that is not finite shows, causes before effects: one bad reward spoils everything below it.
_CAUSES = ("train/mean_reward", "train/policy_loss", "train/value_loss", "train/total_loss", "train/grad_norm")


class Row(NamedTuple):
    """Where a metric lies in a packed vector: `width` values from `start`."""

    name: str
    kind: type[Any]
    start: int
    width: int


class Played(NamedTuple):
    """What a call of a chunk did, on the device."""

    state: TrainState
    packed: Array  # [length, (seeds,) values]: one row per update
    done: Array  # int32: updates done; the row after them is of the update that was refused, if one was


@dataclasses.dataclass
class Chunk:
    """A compiled call of up to `length` updates.

    `call(state, hypers, n)` consumes `state` (its buffers are donated) and does `n <= length` updates with the
    hyperparameters `hypers[name][i]`. After each, everything it reports and every parameter must be finite. Where
    one is not, the loop ends with the state before that update, or goes on without what was learned in it.
    """

    call: Callable[[TrainState, Mapping[str, Values], Any], Played]
    rows: tuple[Row, ...]
    parameters: tuple[str, ...]  # leaves of the parameters, whose flags follow the metrics in a packed row
    length: int
    num_seeds: int
    traces: int  # how often `update` has been traced; 1 for the life of the chunk


class _Going(NamedTuple):
    state: TrainState
    packed: Array
    done: Array
    sound: Array


def compile_chunk(
    algorithm: Algorithm, state: TrainState, length: int, num_seeds: int = 1, on_nonfinite: str = "stop"
) -> Chunk:
    """Compiles a chunk for states shaped like `state` (arrays or their shapes).

    The number of updates is an argument of the compiled loop, so one program serves full chunks and the
    shorter last one. That keeps a run bit for bit the same however its updates fall into chunks, which
    programs compiled for different lengths would not promise.

    Args:
        algorithm: what is learned.
        state: of one agent, or with a leading axis of seeds.
        length: most updates of a call.
        num_seeds: agents trained side by side.
        on_nonfinite: `stop` before an update that is not sound in any seed, or `skip` what a seed learned in it.
    """
    chunk = Chunk(_uncompiled, (), tuple(_parameter_names(state)), length, num_seeds, traces=0)

    def counted(state_t: TrainState, hypers: dict[str, Array]) -> tuple[TrainState, Metrics]:
        chunk.traces += 1
        return algorithm.update(state_t, hypers)

    # An inner jit: its trace is cached, so that looking at the shapes of the metrics costs no second trace.
    update = jax.jit(counted if num_seeds == 1 else jax.vmap(counted, in_axes=(0, None)))
    forget = algorithm.forget if num_seeds == 1 else jax.vmap(algorithm.forget)
    choose: Callable[[Array, TrainState, TrainState], TrainState] = choose_leaves
    if algorithm.choose is not None:
        choose = algorithm.choose if num_seeds == 1 else jax.vmap(algorithm.choose, in_axes=(None, 0, 0))
    shapes = jax.eval_shape(lambda tree: tree, state)
    names = sorted(algorithm.hypers(0))
    scalars = {name: jax.ShapeDtypeStruct((), jnp.float32) for name in names}
    with key_checks(num_seeds):
        metrics = jax.eval_shape(update, shapes, scalars)[1]
    chunk.rows = layout(metrics)
    width = sum(row.width for row in chunk.rows) + len(chunk.parameters)
    excused = _excused(chunk.rows, width)

    def run(state_t: TrainState, hypers: dict[str, Array], n: Array) -> Played:
        def body(carry: _Going) -> _Going:
            new, out = update(carry.state, {name: hypers[name][carry.done] for name in names})
            row = jnp.concatenate([pack(out), _flags(new, num_seeds)], axis=-1)
            sound = (jnp.isfinite(row) | (row[..., excused] == 0)).all(-1)
            packed = carry.packed.at[carry.done].set(row)
            if on_nonfinite == "skip":
                new = choose_leaves(sound, new, forget(carry.state, new))
                return _Going(new, packed, carry.done + 1, carry.sound)
            sound = sound.all()
            return _Going(choose(sound, new, carry.state), packed, carry.done + sound, sound)

        nothing = jnp.zeros((length, *((num_seeds,) if num_seeds > 1 else ()), width), jnp.float32)
        start = _Going(state_t, nothing, jnp.int32(0), jnp.bool_(True))
        end = jax.lax.while_loop(lambda carry: (carry.done < n) & carry.sound, body, start)
        return Played(end.state, end.packed, end.done)

    rows = {name: jax.ShapeDtypeStruct((length,), jnp.float32) for name in names}
    with key_checks(num_seeds):
        lowered = jax.jit(run, donate_argnums=0).lower(shapes, rows, np.int32(0))
    chunk.call = interruptible(lowered.compile)
    return chunk


def key_checks(num_seeds: int) -> contextlib.AbstractContextManager[object]:
    """No checks of key reuse where there are several seeds.

    The checker, where it is on, takes the transpose that `vmap` puts before a scan for a use, and looking at one
    seed for the use of all. It sees the same update without that transpose whenever there is one seed.
    """
    debug_key_reuse: Any = jax.debug_key_reuse
    return contextlib.nullcontext() if num_seeds == 1 else debug_key_reuse(False)


def _uncompiled(state: TrainState, hypers: Mapping[str, Values], n: Any) -> Played:
    raise RuntimeError("the chunk has not been compiled")


def _parameter_names(state: TrainState) -> list[str]:
    paths = [path for path, leaf in jax.tree_util.tree_flatten_with_path(state.params)[0] if _is_float(leaf)]
    return ["params/" + jax.tree_util.keystr(path, simple=True, separator="/") for path in paths]


def _is_float(leaf: Any) -> bool:
    return bool(jnp.issubdtype(leaf.dtype, jnp.inexact))


def _flags(state: TrainState, num_seeds: int) -> Array:
    """`[(seeds,) leaves]`: 0 for every leaf of the parameters that is finite, else not a number."""
    leaves = [leaf for leaf in jax.tree.leaves(state.params) if _is_float(leaf)]
    seeds = 0 if num_seeds == 1 else 1
    finite = [jnp.isfinite(leaf).all(axis=tuple(range(seeds, leaf.ndim))) for leaf in leaves]
    return jnp.stack([jnp.where(flag, 0.0, jnp.nan) for flag in finite], axis=-1)


def _excused(rows: tuple[Row, ...], width: int) -> Values:
    """For each value the place of the count which, being 0, says that it means nothing; its own where there is none."""
    places = np.arange(width)
    for row in rows:
        if row.kind is not Sum:
            places[row.start] = row.start + 1
    return places


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


def reduce_row(rows: tuple[Row, ...], values: Values) -> dict[str, float]:
    """The metrics of one update and seed as plain numbers; a metric without data is left out."""
    reduced: dict[str, float] = {}
    for row in rows:
        cell = [float(value) for value in values[row.start : row.start + row.width]]
        if row.kind is Sum:
            reduced[row.name] = cell[0]
        elif not cell[1] <= 0:
            reduced[row.name] = cell[0] / cell[1] if row.kind is Mean else cell[0]
    return reduced


def not_finite(chunk: Chunk, values: Values) -> list[str]:
    """The metrics and parameters of one packed row (of one seed) that are not finite, the likeliest cause first."""
    if np.isfinite(values).all():
        return []
    metrics = {name for name, value in reduce_row(chunk.rows, values).items() if not np.isfinite(value)}
    first = [name for name in _CAUSES if name in metrics]
    flags = values[len(values) - len(chunk.parameters) :]
    parameters = [name for name, flag in zip(chunk.parameters, flags, strict=True) if not np.isfinite(flag)]
    return [*first, *sorted(metrics.difference(first)), *parameters]
