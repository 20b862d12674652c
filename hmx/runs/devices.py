"""The devices of a run: how many, and which part of its state lies where."""

from __future__ import annotations

import contextlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from hmx.agents.sharding import ENV_AXIS
from hmx.agents.types import Algorithm, TrainState
from hmx.config.schema import Config
from hmx.errors import HmxError
from hmx.runs import checkpoint
from hmx.runs.cluster.group import Group
from hmx.types import Array


def num_devices(cfg: Config) -> int:
    """How many devices `cfg.run.devices` asks for.

    Raises:
        HmxError: there are not as many, or they do not divide the environments.
    """
    there = jax.device_count()
    if cfg.run.devices and jax.process_count() > 1:
        message = f"run.devices = {cfg.run.devices}: a run of several processes takes all devices of each"
        raise HmxError(message, "--devices all")
    wanted = cfg.run.devices or there
    if wanted > there:
        forced = f"XLA_FLAGS=--xla_force_host_platform_device_count={wanted}"
        hint = f"at most --devices {there}" + (
            f"; for a trial, {forced} makes one processor look like {wanted} devices"
            if jax.devices()[0].platform == "cpu"
            else ""
        )
        raise HmxError(f"run.devices = {wanted}: there {'is' if there == 1 else 'are'} only {there}", hint)
    if cfg.env.num_envs % wanted:
        below, above = (cfg.env.num_envs // wanted * wanted, -(-cfg.env.num_envs // wanted) * wanted)
        counts = " or ".join(f"--num-envs {count}" for count in (below, above) if count)
        raise HmxError(f"{wanted} devices do not divide env.num_envs = {cfg.env.num_envs}", counts)
    return wanted


def make_mesh(cfg: Config) -> Mesh | None:
    """The devices of a run, of which each holds an equal part of the environments; None where one is enough.

    Raises:
        HmxError: see `num_devices`.
    """
    wanted = num_devices(cfg)
    if wanted == 1:
        return None
    # Auto: the compiler places what the program does not.
    return jax.make_mesh((wanted,), (ENV_AXIS,), axis_types=(AxisType.Auto,), devices=jax.devices()[:wanted])


def shardings(mesh: Mesh, algorithm: Algorithm, state: TrainState, num_seeds: int) -> Any:
    """Where each leaf of a state lies on `mesh`; a leading axis of seeds is never split.

    Args:
        mesh: of the run.
        algorithm: which knows the partitions.
        state: arrays, or their shapes.
        num_seeds: agents side by side.
    """
    lead = () if num_seeds == 1 else (None,)
    one = state if num_seeds == 1 else jax.eval_shape(lambda tree: jax.tree.map(lambda leaf: leaf[0], tree), state)
    return jax.tree.map(
        lambda partition: NamedSharding(mesh, PartitionSpec(*lead, *partition)), algorithm.partitions(one)
    )


def on_devices(mesh: Mesh | None) -> contextlib.AbstractContextManager[object]:
    """Programs that are traced inside are split over `mesh`."""
    return contextlib.nullcontext() if mesh is None else jax.set_mesh(mesh)


def place(mesh: Mesh | None, algorithm: Algorithm, state: TrainState, num_seeds: int) -> TrainState:
    """A state on the devices of `mesh`, each with the environments that are its own."""
    return state if mesh is None else jax.device_put(state, shardings(mesh, algorithm, state, num_seeds))


def hand_out(
    mesh: Mesh, algorithm: Algorithm, state: TrainState | None, abstract: TrainState, num_seeds: int, group: Group
) -> TrainState:
    """`place` over several processes: each receives the state of process 0, and keeps its part.

    Args:
        mesh: of the run, over the devices of all processes.
        algorithm: which knows the partitions.
        state: on process 0; None elsewhere.
        abstract: its shapes and dtypes.
        num_seeds: agents side by side.
        group: the processes.
    """
    leaves = {} if state is None else checkpoint.to_host(state)
    where = shardings(mesh, algorithm, abstract, num_seeds)
    arrays = []
    for (name, form), sharding in zip(checkpoint.host_forms(abstract).items(), jax.tree.leaves(where), strict=True):
        own = np.ascontiguousarray(leaves[name]).reshape(-1).view(np.uint8).data if leaves else b""
        whole = np.frombuffer(group.share(own), form.dtype).reshape(form.shape)
        arrays.append(jax.make_array_from_callback(form.shape, sharding, whole.__getitem__))
    # `device_put` takes no keys over several processes: they are made from their data where they lie.

    def revive(data: list[Array]) -> TrainState:
        kinds = jax.tree.leaves(abstract)
        # Copies, since donation must not meet memory that is borrowed from numpy.
        found = [jnp.copy(checkpoint.from_data(leaf, kind)) for leaf, kind in zip(data, kinds, strict=True)]
        return jax.tree.unflatten(jax.tree.structure(abstract), found)

    placed: TrainState = jax.jit(revive, out_shardings=where)(arrays)
    return placed


def gather(mesh: Mesh | None, state: TrainState) -> TrainState:
    """All of a state on the first device of this process."""
    if mesh is None:
        return state
    if not mesh.is_multi_process:
        return jax.device_put(state, jax.devices()[0])
    return checkpoint.from_host(checkpoint.to_host(bring_together(mesh, state)), state)


def bring_together(mesh: Mesh | None, state: TrainState) -> TrainState:
    """A state of which each process has all on its first device; where there is one process, just `state`.

    It may share memory with `state`, and is of use until that is donated.
    """
    if mesh is None or not mesh.is_multi_process:
        return state
    leaves, structure = jax.tree.flatten(state)
    split = [place for place, leaf in enumerate(leaves) if not leaf.is_fully_replicated]
    everywhere = NamedSharding(mesh, PartitionSpec())
    # Two programs at a time would get each other's messages.
    found = jax.block_until_ready(jax.jit(_same, out_shardings=everywhere)([leaves[place] for place in split]))
    for place, leaf in zip(split, found, strict=True):
        leaves[place] = leaf
    return jax.tree.unflatten(structure, [leaf.addressable_data(0) for leaf in leaves])


def _same(tree: Any) -> Any:
    # On module level: a function of its own for every call would be compiled for every call.
    return tree
