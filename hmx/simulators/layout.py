"""The memory that a trainer and its workers share: one array per field, over all environments."""

from __future__ import annotations

import mmap
import os
import tempfile
from typing import NamedTuple

import numpy as np

from hmx.simulators.spaces import Facts

_ALIGN = 64  # bytes: arrays of different workers do not share a cache line at their start


class Shared(NamedTuple):
    """Arrays `[E, ...]`; each worker writes the rows of its own environments, the trainer writes actions."""

    obs: np.ndarray  # first of the next episode after an end
    final_obs: np.ndarray  # last of the step's own episode where it ended; otherwise not written
    legal: np.ndarray  # [E, num_actions] bool; [E, 0] for continuous actions
    action: np.ndarray  # [E, P] int32 for P parts, or [E, D] float32 in [-1, 1]
    reward: np.ndarray  # [E] float32
    terminated: np.ndarray  # [E] bool
    truncated: np.ndarray  # [E] bool
    number: np.ndarray  # [E] int64: the running episode; its seed follows from it
    steps: np.ndarray  # [E] int64: taken in it
    digest: np.ndarray  # [E] uint32: of everything that it has shown so far


def forms(facts: Facts, num_envs: int) -> dict[str, tuple[tuple[int, ...], str]]:
    """Return shape and dtype of each field of `Shared`."""
    action, dtype = facts.action_form
    obs = ((num_envs, *facts.obs_shape), facts.obs_dtype)
    return {
        "obs": obs,
        "final_obs": obs,
        "legal": ((num_envs, facts.num_actions), "bool"),
        "action": ((num_envs, *action), dtype),
        "reward": ((num_envs,), "float32"),
        "terminated": ((num_envs,), "bool"),
        "truncated": ((num_envs,), "bool"),
        "number": ((num_envs,), "int64"),
        "steps": ((num_envs,), "int64"),
        "digest": ((num_envs,), "uint32"),
    }


def make_memory(facts: Facts, num_envs: int) -> int:
    """Return the descriptor of a nameless file in memory, large enough for `shared`."""
    size = _size(facts, num_envs)
    handle = os.memfd_create("hmx-simulators") if hasattr(os, "memfd_create") else _temporary()
    os.ftruncate(handle, size)
    return handle


def _temporary() -> int:
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def shared(handle: int, facts: Facts, num_envs: int) -> Shared:
    """Return the arrays in the memory of a descriptor."""
    memory = mmap.mmap(handle, _size(facts, num_envs))
    arrays, start = {}, 0
    for name, (shape, dtype) in forms(facts, num_envs).items():
        count = int(np.prod(shape))
        arrays[name] = np.frombuffer(memory, dtype, count, start).reshape(shape)
        start += _padded(count * np.dtype(dtype).itemsize)
    return Shared(**arrays)


def _size(facts: Facts, num_envs: int) -> int:
    fields = forms(facts, num_envs).values()
    return sum(_padded(int(np.prod(shape)) * np.dtype(dtype).itemsize) for shape, dtype in fields) or _ALIGN


def _padded(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN
