"""The devices of a run: how many, and which part of its state lies where."""

from __future__ import annotations

import contextlib
from typing import Any

import jax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from hmx.agents.spread import ENV_AXIS
from hmx.agents.types import Algorithm, TrainState
from hmx.config.schema import Config
from hmx.errors import HmxError


def num_devices(cfg: Config) -> int:
    """How many devices `cfg.run.devices` asks for.

    Raises:
        HmxError: there are not as many, or they do not divide the environments.
    """
    there = jax.device_count()
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


def gather(mesh: Mesh | None, state: TrainState) -> TrainState:
    """All of a state on the first device."""
    return state if mesh is None else jax.device_put(state, jax.devices()[0])
