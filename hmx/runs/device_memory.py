"""Running out of memory, told in words, before it happens where that can be known."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import jax

from hmx.config.env_facts import facts_known
from hmx.config.schema import Config
from hmx.errors import ExitCode, HmxError
from hmx.sizing.q_memory import largest_capacity, q_memory, stored_bytes


@contextlib.contextmanager
def out_of_memory(doing: str) -> Iterator[None]:
    """Turns a failed allocation, on the host or on the device, into an HmxError.

    Args:
        doing: what the memory was not enough for, as `compiling`.
    """
    try:
        yield
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        text = " ".join(str(error).split())
        if not isinstance(error, MemoryError) and "RESOURCE_EXHAUSTED" not in text:
            raise
        message = f"not enough memory while {doing}" + (f": {text[:200]}" if text else "")
        hint = (
            "fewer of env.num_envs, run.num_seeds, algo.num_steps or replay.capacity need less; another program may "
            "hold the rest. A checkpoint that is there stays good: `hmx resume` goes on from it"
        )
        raise HmxError(message, hint, ExitCode.USAGE) from error


def free_memory() -> int | None:
    """Bytes that may still be allocated where JAX computes; None where nobody tells.

    On a CPU that is what the kernel says is available, or what is left to the control group of this process.
    """
    device = jax.local_devices()[0]
    if device.platform == "cpu":
        found = [size for size in (_available(), _left_to_group()) if size is not None]
        return min(found, default=None)
    stats = device.memory_stats() or {}
    if "bytes_limit" not in stats:
        return None
    return int(stats["bytes_limit"]) - int(stats.get("bytes_in_use", 0))


def _available() -> int | None:
    for row in _lines(Path("/proc/meminfo")):
        if row.startswith("MemAvailable:"):
            return int(row.split()[1]) * 1024
    return None


def _left_to_group() -> int | None:
    group = Path("/sys/fs/cgroup")
    limit, used = _lines(group / "memory.max"), _lines(group / "memory.current")
    if not limit or not used or not limit[0].isdigit():
        return None
    return max(int(limit[0]) - int(used[0]), 0)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


def memory_problem(cfg: Config) -> HmxError | None:
    """Why a run of Q-learning does not fit into what is free, in numbers, and what would; None if it does.

    A buffer is by far the largest thing a run can ask for, and its size is known before anything is allocated; that
    of an extra's environment once it has been built.
    """
    free = free_memory()
    if cfg.algo.name != "dqn" or free is None or not facts_known(cfg.env):
        return None
    memory = q_memory(cfg)
    if memory.total <= free:
        return None
    slot, number = stored_bytes(cfg), cfg.replay.capacity * cfg.run.num_seeds
    message = (
        f"about {memory.total:,} bytes of memory are needed, {number * slot:,} of them for "
        f"{cfg.run.num_seeds} x {cfg.replay.capacity:,} transitions of {slot:,} B, and {free:,} are free"
    )
    fits = largest_capacity(cfg, free)
    hint = f"--set replay.capacity={fits}" if fits else "fewer run.num_seeds or env.num_envs need less"
    return HmxError(message, hint, ExitCode.USAGE)
