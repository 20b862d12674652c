"""One program on several devices: its arrays are split along the environment axis, and it says where that helps.

An algorithm is written for one device. `jax.jit` splits it over the devices of the mesh it is compiled under, and every
mean, norm and statistic stays one over all environments, whatever the number of devices.
"""

from __future__ import annotations

from typing import Any

import jax
from jax.sharding import PartitionSpec

from hmx.env.protocol import Env, EnvState
from hmx.types import Array, Key, Timestep

ENV_AXIS = "env"
"""The axis of the mesh: devices that hold different environments."""


def split_along(axis: int, tree: Any) -> Any:
    """For every leaf the partition that splits it along `axis`, which may count from the end."""
    return jax.tree.map(lambda leaf: PartitionSpec(*[None] * (axis % leaf.ndim), ENV_AXIS), tree)


def whole(tree: Any) -> Any:
    """For every leaf the partition that keeps all of it on every device."""
    return jax.tree.map(lambda leaf: PartitionSpec(), tree)


def spread(tree: Any, axis: int) -> Any:
    """`tree`, its leaves split along `axis` over the devices the program is compiled for; on one, just `tree`.

    A leaf whose axis the devices do not divide is left to the compiler.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty:
        return tree
    num_devices = mesh.shape[ENV_AXIS]

    def split(leaf: jax.Array) -> jax.Array:
        if leaf.shape[axis] % num_devices:
            return leaf
        held: jax.Array = jax.lax.with_sharding_constraint(leaf, split_along(axis, leaf))
        return held

    return jax.tree.map(split, tree)


def step_apart(env: Env, state: EnvState, action: Array, keys: Key) -> tuple[EnvState, Timestep]:
    """`env.step`, by every device for its own environments: those never wait for each other inside a step."""
    if jax.sharding.get_abstract_mesh().empty:
        return env.step(state, action, keys)
    states, split = split_along(env.spec.state_axis, state), PartitionSpec(ENV_AXIS)
    # Loops over a batch end by what the batch is, which is another on every device: nothing here is the same on all.
    step = jax.shard_map(env.step, in_specs=(states, split, split), out_specs=(states, split), check_vma=False)
    stepped: tuple[EnvState, Timestep] = step(state, action, keys)
    return stepped
