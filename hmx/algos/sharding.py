"""Splitting one program over several devices along the environment axis.

An algorithm is written for one device. `jax.jit` splits it over the devices of the mesh it is compiled for; every mean,
norm and statistic still covers all environments, for any number of devices.
"""

from __future__ import annotations

from typing import Any, TypeVar

import jax
from jax.sharding import PartitionSpec

from hmx.algos.types import TrainState
from hmx.envs.protocol import Env, EnvSpec, EnvState
from hmx.types import Array, Key, Timestep

Tree = TypeVar("Tree")

ENV_AXIS = "env"
"""Name of the mesh axis along which devices hold different environments."""


def split_along(axis: int, tree: Any) -> Any:
    """Return the partition of each leaf that splits it along `axis`, which may be negative."""
    return jax.tree.map(lambda leaf: PartitionSpec(*[None] * (axis % leaf.ndim), ENV_AXIS), tree)


def replicate(tree: Any) -> Any:
    """Return the partition of each leaf that keeps a full copy on every device."""
    return jax.tree.map(lambda leaf: PartitionSpec(), tree)


def partitions(spec: EnvSpec, state: TrainState) -> TrainState:
    """Return the partition of every leaf of a training state: per-environment leaves are split by environment."""

    def split(part: Any) -> Any:
        along_env = split_along(0, part._replace(env_state=None))
        return along_env._replace(env_state=split_along(spec.state_axis, part.env_state))

    actors = state.actors
    first = actors.first
    if first is not None:
        first = replicate(first)._replace(running=split_along(0, first.running))
    split_actors = split(actors._replace(obs_stats=None, starts=None, first=None))._replace(
        obs_stats=replicate(actors.obs_stats),
        starts=None if actors.starts is None else split(actors.starts),
        first=first,
    )
    return replicate(state)._replace(actors=split_actors)  # type: ignore[no-any-return]


def shard(tree: Tree, axis: int) -> Tree:
    """Split the leaves of `tree` along `axis` over the devices the program is compiled for; one device needs no split.

    A leaf whose axis cannot be divided by the number of devices is left to the compiler.
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

    sharded: Tree = jax.tree.map(split, tree)
    return sharded


def step_sharded(env: Env, state: EnvState, action: Array, keys: Key) -> tuple[EnvState, Timestep]:
    """Call `env.step` on every device for its environments, so that devices do not wait for each other."""
    if jax.sharding.get_abstract_mesh().empty:
        return env.step(state, action, keys)
    states, split = split_along(env.spec.state_axis, state), PartitionSpec(ENV_AXIS)
    # Loops over a batch end at different times on different devices: no value here is the same on all of them.
    step = jax.shard_map(env.step, in_specs=(states, split, split), out_specs=(states, split), check_vma=False)
    stepped: tuple[EnvState, Timestep] = step(state, action, keys)
    return stepped
