"""Ask a run how much memory it takes, before anything is allocated.

The shapes of its state say what it keeps, and the trace of its update what that holds in addition.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax

from hmx.config import fields
from hmx.envs.registry import sizes_of
from hmx.errors import ExitCode, HmxError, optional
from hmx.registry.check import problems
from hmx.registry.load import Loaded
from hmx.runs.checkpoint import state_bytes
from hmx.runs.chunk import PROGRAM, UPDATE_BYTES, chunk_shapes, trace_chunk, update_bytes
from hmx.runs.device_memory import free_memory
from hmx.runs.devices import make_mesh, shardings
from hmx.runs.hosted import trace_hosted
from hmx.runs.memory_parts import UNCERTAINTY, Memory, MemoryPart, add_up, largest_fit
from hmx.runs.session import Session, make_session

_SMALL = 1024  # bytes; smaller parts of the state are counted with the parameters


def run_memory(session: Session) -> Memory | None:
    """Return the memory of a run during an update, over all its seeds and devices.

    The result is None if the run is too large to be traced, or if the estimate fails.
    """
    update = _update_bytes(session)
    if update is None:
        return None
    label, when = "rollout, gradients, activations", "at the peak of an update"
    with optional("estimate the memory of the state"):
        parts = [*_kept(session), MemoryPart("update_bytes", label, update, when, exact=False)]
        return add_up(parts, _parameters(session))
    return None


def fits(session: Session) -> bool:
    """Return whether a run may fit into free memory: the lowest estimate does, or it is not known what is free."""
    free = free_memory()
    return free is None or _least_bytes(session, free) <= free


def placed(session: Session) -> Session:
    """Return a session on the devices that its configuration asks for.

    Raises:
        HmxError: there are too few devices, they do not divide the environments, or the run does not fit into their
            memory (exit code 2).
    """
    cfg = session.cfg
    session = session._replace(mesh=make_mesh(cfg.run.devices, cfg.env.num_envs))
    tried = session.shared is not None and session.shared.chunk is not None  # by a run of the same size
    if not tried and (problem := memory_problem(session)):
        raise problem
    return session


def memory_problem(session: Session) -> HmxError | None:
    """Return an error if a run needs more memory than is free, with the largest size that fits; see `fits`."""
    free = free_memory()
    if free is None or (needed := _least_bytes(session, free)) <= free:
        return None
    largest = max(_kept(session), key=lambda part: part.bytes)
    of_it = f" ({largest.bytes:,} of them for {largest.label})" if largest.bytes > needed / 2 else ""
    message = f"not enough memory: at least {needed:,} bytes needed{of_it}, {free:,} free"
    hint = "reduce env.num_envs, replay.capacity, algo.num_steps, run.num_seeds or the network"
    if hasattr(session.abstract.learner, "replay") and (value := largest_size(session, "replay.capacity", free)):
        hint = f"--set replay.capacity={value}"
    elif value := largest_size(session, "env.num_envs", free):
        hint = f"--num-envs {value}"
    return HmxError(message, hint, ExitCode.USAGE)


def largest_size(session: Session, key: str, free: int) -> int:
    """Return the largest value of a size with which a run fits into so many bytes; 0 if there is none."""
    cfg, sizes = session.cfg, sizes_of(session.env)

    def other(value: int) -> Loaded:
        return session.task.changed({key: value})

    def needed(value: int) -> int:
        return _least_bytes(make_session(other(value), session.env)._replace(mesh=session.mesh), free)

    def below(value: int) -> int:
        if key == "replay.capacity":
            value -= value % cfg.env.num_envs
        else:  # a power of two, which is divisible into minibatches
            value = 1 << (value.bit_length() - 1) if value > 0 else 0
        return 0 if value <= 0 or problems(other(value).config, sizes) else value

    return largest_fit(needed, int(str(fields.get(cfg, key))), free, below)


def _kept(session: Session) -> Iterator[MemoryPart]:
    """Yield the parts of the state, all of them exact."""
    state, learner = session.abstract, session.abstract.learner
    own = learner._asdict() if hasattr(learner, "_asdict") else {"learner": learner}
    sizes = {name: size for name, value in own.items() if (size := state_bytes(value)) >= _SMALL}
    actors, envs = state_bytes(state.actors), session.cfg.env.num_envs * session.cfg.run.num_seeds
    rest = state_bytes(state) - actors - sum(sizes.values())
    yield MemoryPart("model_bytes", "parameters and optimiser", rest, f"{_parameters(session):,} parameters")
    yield MemoryPart("environment_bytes", "environments", actors, f"{envs:,} environments x {actors // envs:,} B")
    for name, size in sizes.items():
        yield MemoryPart(f"{name}_bytes", name.replace("_", " "), size, "part of the learner's state")


def _parameters(session: Session) -> int:
    sizes: list[int] = [leaf.size for leaf in jax.tree.leaves(session.abstract.params)]
    return sum(sizes) // session.cfg.run.num_seeds


def _update_bytes(session: Session) -> int | None:
    """Return the bytes that an update holds in addition to the state before it; None if they are unknown."""
    cfg, algorithm, abstract = session.cfg, session.algorithm, session.abstract
    run = cfg.run
    length = session.sizes.updates_per_chunk
    if session.lowered is not None:
        known = session.lowered.find(PROGRAM, *chunk_shapes(algorithm, abstract, length))
        if known is not None and isinstance(size := known.facts.get(UPDATE_BYTES), int):
            return size
    try:
        if session.env.spec.simulator is None:
            _, traced = trace_chunk(algorithm, abstract, length, run.num_seeds, run.on_nonfinite)
        else:
            _, traced = trace_hosted(algorithm, abstract, cfg.algo.num_steps, run.on_nonfinite)
    except OverflowError:  # an array has more elements than 32-bit indices count
        return None
    return update_bytes(traced, len(jax.tree.leaves(session.abstract)))


def _least_bytes(session: Session, enough: int) -> int:
    """Return the lowest estimate of the bytes on each device; only those of the state if these exceed `enough`.

    Devices of a CPU share one memory; others share the environments. Bytes that are unknown count as 0.
    """
    mesh = None if jax.local_devices()[0].platform == "cpu" else session.mesh
    kept, devices = 0, 1 if mesh is None else mesh.size
    with optional("estimate the memory of the state"):
        kept = state_bytes(session.abstract)
        if mesh is not None:
            places = shardings(mesh, session.algorithm, session.abstract, session.cfg.run.num_seeds)
            kept = state_bytes(jax.tree.map(_on_one_device, session.abstract, places))
    return kept if kept > enough else kept + (_update_bytes(session) or 0) // UNCERTAINTY // devices


def _on_one_device(leaf: Any, place: jax.sharding.Sharding) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(place.shard_shape(leaf.shape), leaf.dtype)
