"""Compile a chunk of updates with their metrics and the checks for values that are not finite."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from hmx.algos.types import Algorithm, TrainState, tree_where
from hmx.config.schema import OnNonFinite, RunConfig
from hmx.errors import optional
from hmx.records.plain import JsonValue
from hmx.runs.devices import on_devices, shardings
from hmx.runs.peak_bytes import peak_bytes
from hmx.runs.signals import interruptible
from hmx.types import Array, Max, Mean, Metrics, Sum

if TYPE_CHECKING:
    from hmx.runs.lowered import LoweredPrograms

Values = np.ndarray[Any, Any]

PROGRAM = "chunk"  # name of the stored program
UPDATE_BYTES = "update_bytes"  # its fact: the bytes that an update holds in addition to the state before it
_KINDS = {kind.__name__: kind for kind in (Mean, Sum, Max)}

# Metrics that show non-finite values, causes before effects: one bad reward spoils all later ones.
REWARD_TERM = "reward/"  # group of the terms that the reward is the sum of
MEAN_REWARD = "train/mean_reward"
_CAUSES = (MEAN_REWARD, "train/policy_loss", "train/value_loss", "train/total_loss", "train/grad_norm")


class MetricSlice(NamedTuple):
    """The position of a metric in a packed vector: `width` values from `start`."""

    name: str
    kind: type[Any]
    start: int
    width: int


class ChunkResult(NamedTuple):
    """The result of a chunk, on the device."""

    state: TrainState
    packed: Array  # [length, (seeds,) values]: one row per update
    done: Array  # int32: updates done; the next row belongs to the update that was not finite, if any


@dataclasses.dataclass
class Chunk:
    """A compiled call of up to `length` updates.

    `call(state, hypers, n)` consumes `state` (its buffers are donated) and does `n <= length` updates with the
    hyperparameters `hypers[name][i]`. After each update all metrics and parameters must be finite. Otherwise the chunk
    ends with the state before that update, or continues without the parameters learned in it.
    """

    call: Callable[[TrainState, Mapping[str, Values], np.int32], ChunkResult]
    rows: tuple[MetricSlice, ...]
    parameters: tuple[str, ...]  # leaves of the parameters, whose flags follow the metrics in a packed row
    length: int
    num_seeds: int
    traces: int  # how often `update` was traced: once before the first call, twice with several devices
    memory_bytes: int = 0  # on each device, as compiled

    @classmethod
    def empty(cls, num_seeds: int, length: int = 0) -> Chunk:
        """Return a chunk that cannot be called."""
        return cls(_uncompiled, (), (), length, num_seeds, traces=0)


class _Carry(NamedTuple):
    state: TrainState
    packed: Array
    done: Array
    sound: Array


def compile_chunk(
    algorithm: Algorithm,
    state: TrainState,
    length: int,
    num_seeds: int = RunConfig.num_seeds,
    on_nonfinite: OnNonFinite = RunConfig.on_nonfinite,
    mesh: Mesh | None = None,
    programs: LoweredPrograms | None = None,
) -> Chunk:
    """Compile a chunk; arguments as of `trace_chunk`. It is not traced if it is one of the stored `programs`.

    With a `mesh`, states are placed by `devices.put`.
    """
    shapes = chunk_shapes(algorithm, state, length)
    if mesh is not None:
        programs = None  # stored programs are for one device
    stored = None if programs is None else _stored_chunk(programs, shapes, length, num_seeds)
    if stored is None:
        chunk, function = _chunk_function(algorithm, state, length, num_seeds, on_nonfinite, mesh)
        with on_devices(mesh), key_checks(num_seeds):
            traced, program = function.trace(*shapes), None
            if programs is not None:
                facts = _facts(chunk, traced, len(jax.tree.leaves(state)))
                program = programs.add(PROGRAM, function, *shapes, facts=facts)
            lowered = None if program is None else program.lower(*shapes, donate=[0])
            lowered = traced.lower() if lowered is None else lowered
    else:
        chunk, lowered = stored
    chunk.call = compiled = interruptible(lowered.compile)
    chunk.memory_bytes = memory_bytes_of(compiled)
    return chunk


def _stored_chunk(
    programs: LoweredPrograms, shapes: tuple[Any, ...], length: int, num_seeds: int
) -> tuple[Chunk, jax.stages.Lowered] | None:
    """Return a stored chunk, which is not compiled yet; None without an entry that can be used."""
    program = programs.find(PROGRAM, *shapes)
    lowered = None if program is None else program.lower(*shapes, donate=[0])
    if program is None or lowered is None:
        return None
    with optional("read the facts of a stored program"):
        return _chunk_of(program.facts, length, num_seeds), lowered
    return None


def chunk_shapes(algorithm: Algorithm, state: TrainState, length: int) -> tuple[Any, ...]:
    """Return the shapes of the arguments of a chunk."""
    rows = {name: jax.ShapeDtypeStruct((length,), jnp.float32) for name in sorted(algorithm.hypers(0))}
    return jax.eval_shape(lambda tree: tree, state), rows, jax.ShapeDtypeStruct((), jnp.int32)


def _facts(chunk: Chunk, traced: jax.stages.Traced, num_leaves: int) -> dict[str, JsonValue]:
    """Describe a chunk for a process that does not trace it."""
    return {
        "rows": [[row.name, row.kind.__name__, row.start, row.width] for row in chunk.rows],
        "parameters": list(chunk.parameters),
        UPDATE_BYTES: update_bytes(traced, num_leaves),
    }


def update_bytes(traced: jax.stages.Traced, num_leaves: int) -> int | None:
    """Estimate the bytes that an update holds in addition to the state before it; None if that fails.

    Args:
        traced: updates as `trace_chunk` returns them.
        num_leaves: arrays of the state.
    """
    with optional("estimate the memory of an update"):
        return peak_bytes(traced.jaxpr, 0, num_leaves)
    return None


def _chunk_of(facts: Mapping[str, Any], length: int, num_seeds: int) -> Chunk:
    """Invert `_facts`."""
    chunk = Chunk.empty(num_seeds, length)
    chunk.rows = tuple(MetricSlice(name, _KINDS[kind], start, width) for name, kind, start, width in facts["rows"])
    chunk.parameters = tuple(facts["parameters"])
    return chunk


def trace_chunk(
    algorithm: Algorithm,
    state: TrainState,
    length: int,
    num_seeds: int = RunConfig.num_seeds,
    on_nonfinite: OnNonFinite = RunConfig.on_nonfinite,
) -> tuple[Chunk, jax.stages.Traced]:
    """Trace a chunk for states shaped like `state` (arrays or their shapes); it can be called once it is compiled.

    The number of updates is an argument of the compiled loop, so one program runs full chunks and the shorter last one.
    This keeps a run bit for bit the same for any division of its updates into chunks; programs compiled for different
    lengths would not guarantee that. `on_nonfinite` stops before an update that is not finite in any seed, or skips
    what that seed learned in it.
    """
    chunk, function = _chunk_function(algorithm, state, length, num_seeds, on_nonfinite, None)
    with key_checks(num_seeds):
        return chunk, function.trace(*chunk_shapes(algorithm, state, length))


def _chunk_function(
    algorithm: Algorithm, state: TrainState, length: int, num_seeds: int, on_nonfinite: OnNonFinite, mesh: Mesh | None
) -> tuple[Chunk, jax.stages.Wrapped]:
    """Return a chunk and its function of `jax.jit`, `(state, hypers, n) -> ChunkResult`; see `trace_chunk`."""
    chunk = Chunk.empty(num_seeds, length)
    chunk.parameters = parameter_names(state)
    # JAX keeps the trace of this function for other chunks of the algorithm.
    shared: Callable[[TrainState, dict[str, Array]], tuple[TrainState, Metrics]] = jax.jit(algorithm.update)

    def counted(state_t: TrainState, hypers: dict[str, Array]) -> tuple[TrainState, Metrics]:
        chunk.traces += 1
        return shared(state_t, hypers)

    # An inner jit: its trace is cached, so that `eval_shape` below costs no second trace.
    update = jax.jit(counted if num_seeds == 1 else jax.vmap(counted, in_axes=(0, None)))
    shapes = jax.eval_shape(lambda tree: tree, state)
    names = sorted(algorithm.hypers(0))
    scalars = {name: jax.ShapeDtypeStruct((), jnp.float32) for name in names}
    with on_devices(mesh), key_checks(num_seeds):
        metrics = jax.eval_shape(update, shapes, scalars)[1]
    chunk.rows = layout(metrics)
    width = sum(row.width for row in chunk.rows) + len(chunk.parameters)
    judge = make_judge(algorithm, chunk, on_nonfinite)

    def run(state_t: TrainState, hypers: dict[str, Array], n: Array) -> ChunkResult:
        def body(carry: _Carry) -> _Carry:
            new, out = update(carry.state, {name: hypers[name][carry.done] for name in names})
            after, row, counts = judge(carry.state, new, out)
            return _Carry(after, carry.packed.at[carry.done].set(row), carry.done + counts, counts)

        nothing = jnp.zeros((length, *((num_seeds,) if num_seeds > 1 else ()), width), jnp.float32)
        start = _Carry(state_t, nothing, jnp.int32(0), jnp.bool_(True))
        end = jax.lax.while_loop(lambda carry: (carry.done < n) & carry.sound, body, start)
        return ChunkResult(end.state, end.packed, end.done)

    where: Any = {}
    if mesh is not None:
        states, everywhere = shardings(mesh, algorithm, shapes, num_seeds), NamedSharding(mesh, PartitionSpec())
        parts: Any = (states, everywhere, everywhere)
        where = {"in_shardings": parts, "out_shardings": ChunkResult(*parts)}
    return chunk, jax.jit(run, donate_argnums=0, **where)


def make_judge(
    algorithm: Algorithm, chunk: Chunk, on_nonfinite: OnNonFinite
) -> Callable[[TrainState, TrainState, Metrics], tuple[TrainState, Array, Array]]:
    """Return the function that decides whether an update counts: `(before, after, metrics) -> (state, row, counts)`.

    `row` is the update in packed form. An update with values that are not finite does not count and leaves the state
    before it; with `skip` it counts, and what the affected seeds learned in it is lost.
    """
    num_seeds = chunk.num_seeds
    forget = algorithm.forget if num_seeds == 1 else jax.vmap(algorithm.forget)
    choose: Callable[[Array, TrainState, TrainState], TrainState] = tree_where
    if algorithm.select is not None:
        choose = algorithm.select if num_seeds == 1 else jax.vmap(algorithm.select, in_axes=(None, 0, 0))
    excused = _excused(chunk.rows, sum(row.width for row in chunk.rows) + len(chunk.parameters))

    def judge(before: TrainState, after: TrainState, metrics: Metrics) -> tuple[TrainState, Array, Array]:
        row = jnp.concatenate([pack(metrics), _flags(after, num_seeds)], axis=-1)
        sound = (jnp.isfinite(row) | (row[..., excused] == 0)).all(-1)
        if on_nonfinite == "skip":
            return tree_where(sound, after, forget(before, after)), row, jnp.bool_(True)
        sound = sound.all()
        return choose(sound, after, before), row, sound

    return judge


def memory_bytes_of(compiled: jax.stages.Compiled) -> int:
    """Return the bytes of arguments, results and everything between; 0 if they are unknown."""
    with optional("read the memory of a compiled program"):
        sizes = compiled.memory_analysis()
        if sizes is not None:
            total = sizes.argument_size_in_bytes + sizes.output_size_in_bytes + sizes.temp_size_in_bytes
            return int(total - sizes.alias_size_in_bytes)
    return 0


def key_checks(num_seeds: int) -> contextlib.AbstractContextManager[object]:
    """Turn off the check for key reuse with several seeds.

    The checker counts the transpose that `vmap` puts before a scan, and the indexing of one seed, as uses of all keys.
    With one seed it checks the same update.
    """
    debug_key_reuse: Any = jax.debug_key_reuse
    return contextlib.nullcontext() if num_seeds == 1 else debug_key_reuse(False)


def _uncompiled(state: TrainState, hypers: Mapping[str, Values], n: np.int32) -> ChunkResult:
    raise RuntimeError("the chunk has not been compiled")


def parameter_names(state: TrainState) -> tuple[str, ...]:
    """Return the leaves of the parameters that can fail to be finite."""
    paths = [path for path, leaf in jax.tree_util.tree_flatten_with_path(state.params)[0] if _is_float(leaf)]
    return tuple("params/" + jax.tree_util.keystr(path, simple=True, separator="/") for path in paths)


def _is_float(leaf: Array) -> bool:
    return bool(jnp.issubdtype(leaf.dtype, jnp.inexact))


def _flags(state: TrainState, num_seeds: int) -> Array:
    """Return `[(seeds,) leaves]`: 0 for every parameter leaf that is finite, otherwise NaN."""
    leaves = [leaf for leaf in jax.tree.leaves(state.params) if _is_float(leaf)]
    seeds = 0 if num_seeds == 1 else 1
    finite = [jnp.isfinite(leaf).all(axis=tuple(range(seeds, leaf.ndim))) for leaf in leaves]
    return jnp.stack([jnp.where(flag, 0.0, jnp.nan) for flag in finite], axis=-1)


def _excused(rows: tuple[MetricSlice, ...], width: int) -> Values:
    """Return the index of each value's count, where 0 means no data; a value without a count gets its own index."""
    indices = np.arange(width)
    for row in rows:
        if row.kind is not Sum:
            indices[row.start] = row.start + 1
    return indices


def layout(metrics: Metrics) -> tuple[MetricSlice, ...]:
    """Return the position of each accumulator of `metrics` in the vector made by `pack`."""
    rows: list[MetricSlice] = []
    start = 0
    for name in sorted(metrics):
        width = len(metrics[name])
        rows.append(MetricSlice(name, type(metrics[name]), start, width))
        start += width
    return tuple(rows)


def pack(metrics: Metrics) -> Array:
    """Pack all accumulators of an update into one vector, so that a chunk needs one transfer to the host."""
    return jnp.stack([jnp.asarray(leaf, jnp.float32) for name in sorted(metrics) for leaf in metrics[name]], axis=-1)


def reduce_row(rows: tuple[MetricSlice, ...], values: Values) -> dict[str, float]:
    """Return the metrics of one update and seed as plain numbers, without those that have no data."""
    reduced: dict[str, float] = {}
    for row in rows:
        cell = [float(value) for value in values[row.start : row.start + row.width]]
        if row.kind is Sum:
            reduced[row.name] = cell[0]
        elif not cell[1] <= 0:
            reduced[row.name] = cell[0] / cell[1] if row.kind is Mean else cell[0]
    return reduced


def not_finite(chunk: Chunk, values: Values) -> list[str]:
    """Return the metrics and parameters of one packed row (of one seed) that are not finite, likely causes first."""
    if np.isfinite(values).all():
        return []
    metrics = {name for name, value in reduce_row(chunk.rows, values).items() if not np.isfinite(value)}
    terms = sorted(name for name in metrics if name.startswith(REWARD_TERM))
    first = [*terms, *(name for name in _CAUSES if name in metrics)]
    flags = values[len(values) - len(chunk.parameters) :]
    parameters = [name for name, flag in zip(chunk.parameters, flags, strict=True) if not np.isfinite(flag)]
    return [*first, *sorted(metrics.difference(first)), *parameters]
