"""The program of a worker of `time_to_return.py`, and helpers of programs."""

from __future__ import annotations

import contextlib
import importlib.metadata
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from time_to_return_task import Task

Series = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]
"""Of each update: how many episodes ended, and the sum of their returns."""


class Program(NamedTuple):
    """A program that is ready to train: `step` does some updates, and all numbers it returns are on the host.

    Where a program trains several seeds, its series has their sums.
    """

    start: Callable[[int], Any]  # the state of a seed, or of several from that one on
    step: Callable[[Any], tuple[Any, Series]]
    per_update: int  # environment steps
    total: int  # environment steps that a training lasts
    versions: str
    workers_cpu: Callable[[], float] = lambda: 0.0  # processor seconds of its worker processes
    memory_bytes: int = 0  # of arguments, results and everything between
    begin: Callable[[Any], Any] | None = None  # the part of `step` that is not training


def side_by_side(function: Callable[..., Any], task: Task) -> Callable[..., Any]:
    """Return a function of one seed for all seeds of a task: their arrays have a leading axis if there are several."""
    return function if task.together == 1 else jax.vmap(function)


def keys_of(make: Callable[[Any], jax.Array], seed: int, task: Task) -> jax.Array:
    """Return the key of a seed, or of several from that one on."""
    return make(seed) if task.together == 1 else jax.vmap(make)(seed + jnp.arange(task.together))


def over_seeds(values: np.ndarray[Any, Any], task: Task) -> np.ndarray[Any, Any]:
    """Return the sums over the seeds, which are the leading axis if there are several."""
    return values if task.together == 1 else values.sum(0)


def memory_bytes_of(compiled: jax.stages.Compiled) -> int:
    """Return the bytes of arguments, results and everything between; 0 where the backend does not say.

    The same as `hmx.runs.chunk.memory_bytes_of`, which the Python of a peer does not have.
    """
    sizes = compiled.memory_analysis()
    if sizes is None:
        return 0
    total = sizes.argument_size_in_bytes + sizes.output_size_in_bytes + sizes.temp_size_in_bytes
    return int(total - sizes.alias_size_in_bytes)


def versions(*packages: str) -> str:
    """Name the installed ones of some packages with their versions, and the device."""
    found = []
    for name in (*packages, "jax"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found.append(f"{name} {importlib.metadata.version(name)}")
    return f"{', '.join(found)} on {jax.devices()[0].device_kind}"
