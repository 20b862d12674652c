"""Choose the devices of a run and place its state on them."""

from __future__ import annotations

import contextlib
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from hmx.algos.sharding import ENV_AXIS
from hmx.algos.types import Algorithm, TrainState
from hmx.errors import HmxError
from hmx.runs import checkpoint
from hmx.runs.cluster.group import Group
from hmx.types import Array


def make_mesh(asked: int, num_envs: int) -> Mesh | None:
    """Return the mesh of a run, on which each device holds an equal part of the environments; None for one device.

    `asked` is `run.devices`, 0 for all. Refuse more devices than there are, and those that do not divide the
    environments.
    """
    available = jax.device_count()
    if asked and jax.process_count() > 1:
        message = f"run.devices = {asked}: a run of several processes uses all devices of each"
        raise HmxError(message, "--devices all")
    wanted = asked or available
    if wanted > available:
        forced = f"XLA_FLAGS=--xla_force_host_platform_device_count={wanted}"
        on_cpu = jax.devices()[0].platform == "cpu"
        hint = f"--devices {available}" + (f"; to try {wanted} devices on one CPU: {forced}" if on_cpu else "")
        raise HmxError(f"run.devices = {wanted}: only {available} available", hint)
    if num_envs % wanted:
        below, above = (num_envs // wanted * wanted, -(-num_envs // wanted) * wanted)
        counts = " or ".join(f"--num-envs {count}" for count in (below, above) if count)
        raise HmxError(f"{wanted} devices do not divide env.num_envs = {num_envs}", counts)
    if wanted == 1:
        return None
    # Auto: the compiler chooses the sharding of what the program does not annotate.
    return jax.make_mesh((wanted,), (ENV_AXIS,), axis_types=(AxisType.Auto,), devices=jax.devices()[:wanted])


def shardings(mesh: Mesh, algorithm: Algorithm, state: TrainState, num_seeds: int) -> TrainState:
    """Return the sharding of each leaf of a state on `mesh`; a leading axis of seeds is never split."""
    lead = () if num_seeds == 1 else (None,)
    one = state if num_seeds == 1 else jax.eval_shape(lambda tree: jax.tree.map(lambda leaf: leaf[0], tree), state)
    parts = algorithm.partitions(one)
    return cast(TrainState, jax.tree.map(lambda part: NamedSharding(mesh, PartitionSpec(*lead, *part)), parts))


def device_name(mesh: Mesh | None) -> str:
    """Return the name of the devices of a run, such as `cpu` or `NVIDIA H200 (1 of 1)`."""
    used = 1 if mesh is None else mesh.size
    device, there, processes = jax.devices()[0], jax.device_count(), jax.process_count()
    apart = f", {processes} processes" if processes > 1 else ""
    alone = device.platform == "cpu" and there == 1
    return str(device.device_kind) if alone else f"{device.device_kind} ({used} of {there}{apart})"


def on_devices(mesh: Mesh | None) -> contextlib.AbstractContextManager[object]:
    """Split programs that are traced inside the block over `mesh`."""
    return contextlib.nullcontext() if mesh is None else jax.set_mesh(mesh)


def put(mesh: Mesh | None, algorithm: Algorithm, state: TrainState, num_seeds: int) -> TrainState:
    """Shard a state over the devices of `mesh`."""
    if mesh is None:
        return state
    return cast(TrainState, jax.device_put(state, shardings(mesh, algorithm, state, num_seeds)))


def scatter(
    mesh: Mesh, algorithm: Algorithm, state: TrainState | None, abstract: TrainState, num_seeds: int, group: Group
) -> TrainState:
    """Send the state of process 0 to all processes; each keeps its part, sharded as by `put`."""
    leaves = {} if state is None else checkpoint.to_host(state)
    where = shardings(mesh, algorithm, abstract, num_seeds)
    arrays = []
    for (name, form), sharding in zip(checkpoint.host_forms(abstract).items(), jax.tree.leaves(where), strict=True):
        own = np.ascontiguousarray(leaves[name]).reshape(-1).view(np.uint8).data if leaves else b""
        whole = np.frombuffer(group.broadcast(own), form.dtype).reshape(form.shape)
        arrays.append(jax.make_array_from_callback(form.shape, sharding, whole.__getitem__))
    # `device_put` takes no keys over several processes: they are made from their data on each device.

    def revive(data: list[Array]) -> TrainState:
        kinds = jax.tree.leaves(abstract)
        # Copies, since donated memory must not be borrowed from numpy.
        found = [jnp.copy(checkpoint.from_data(leaf, kind)) for leaf, kind in zip(data, kinds, strict=True)]
        return cast(TrainState, jax.tree.unflatten(jax.tree.structure(abstract), found))

    return cast(TrainState, jax.jit(revive, out_shardings=where)(arrays))


def gather(mesh: Mesh | None, state: TrainState) -> TrainState:
    """Return the whole state on the first device of this process."""
    if mesh is None:
        return state
    if not mesh.is_multi_process:
        return cast(TrainState, jax.device_put(state, jax.devices()[0]))
    return checkpoint.from_host(checkpoint.to_host(replicate_locally(mesh, state)), state)


def replicate_locally(mesh: Mesh | None, state: TrainState) -> TrainState:
    """Return the whole state on the first device of each process; with one process, `state` itself.

    The result may share memory with `state`, and is valid until that is donated.
    """
    if mesh is None or not mesh.is_multi_process:
        return state
    leaves, structure = jax.tree.flatten(state)
    split = [i for i, leaf in enumerate(leaves) if not leaf.is_fully_replicated]
    replicated = NamedSharding(mesh, PartitionSpec())
    # Blocking: two programs running at once would receive each other's messages.
    found = jax.block_until_ready(jax.jit(_identity, out_shardings=replicated)([leaves[i] for i in split]))
    for i, leaf in zip(split, found, strict=True):
        leaves[i] = leaf
    return cast(TrainState, jax.tree.unflatten(structure, [leaf.addressable_data(0) for leaf in leaves]))


def _identity(tree: Any) -> Any:
    # At module level, so that it is compiled once.
    return tree
