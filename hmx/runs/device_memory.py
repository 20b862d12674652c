"""Measure the free memory of a device, and report a lack of memory or of file handles."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import jax

from hmx.errors import ExitCode, HmxError, optional
from hmx.own.copies import naming_failures

_KEPT = "Existing checkpoints are intact: `hmx resume` continues from the newest"


@contextlib.contextmanager
def naming_shortages(doing: str) -> Iterator[None]:
    """Turn a lack of memory, on the host or on the device, or of file handles into an HmxError."""
    try:
        with naming_failures():
            yield
    except (MemoryError, RuntimeError) as error:
        text = " ".join(str(error).split())
        if "random_device" in text:  # JAX 0.11 and newer need a free handle to copy an array, and do not name the cause
            message = f"cannot continue {doing}: {os.strerror(errno.EMFILE)}"
            hint = f"raise the limit of open files (`ulimit -n`). {_KEPT}"
            raise HmxError(message, hint, ExitCode.ARTEFACT) from error
        if not isinstance(error, MemoryError) and "RESOURCE_EXHAUSTED" not in text:
            raise
        message = f"not enough memory while {doing}" + (f": {text[:200]}" if text else "")
        hint = (
            "reduce env.num_envs, run.num_seeds, algo.num_steps or replay.capacity, or free memory used by other "
            f"programs. {_KEPT}"
        )
        raise HmxError(message, hint, ExitCode.USAGE) from error


def free_memory() -> int | None:
    """Return the bytes that can still be allocated on JAX's first device; None if unknown.

    On a CPU these are the available bytes according to the kernel, or those left to the control group of this process.
    """
    device = jax.local_devices()[0]
    with optional("measure the free memory"):
        if device.platform == "cpu":
            found = [size for size in (_available(), _left_to_group()) if size is not None]
            return min(found, default=None)
        stats = device.memory_stats() or {}
        if "bytes_limit" in stats:
            return int(stats["bytes_limit"]) - int(stats.get("bytes_in_use", 0))
    return None


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
