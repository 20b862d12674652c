"""Predict and report out-of-memory errors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import jax

from hmx.config.fields import replace
from hmx.config.schema import Config
from hmx.errors import ExitCode, HmxError
from hmx.registry.algorithms import find_algorithm
from hmx.registry.env_facts import facts_known
from hmx.registry.user_code import has_own_code
from hmx.sizing.memory import largest_capacity, q_memory, run_memory, stored_bytes


@contextlib.contextmanager
def out_of_memory(doing: str) -> Iterator[None]:
    """Turn a failed allocation, on the host or on the device, into an HmxError."""
    try:
        yield
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        text = " ".join(str(error).split())
        if not isinstance(error, MemoryError) and "RESOURCE_EXHAUSTED" not in text:
            raise
        message = f"not enough memory while {doing}" + (f": {text[:200]}" if text else "")
        hint = (
            "reduce env.num_envs, run.num_seeds, algo.num_steps or replay.capacity, or free memory used by other "
            "programs. Existing checkpoints are intact: `hmx resume` continues from the newest"
        )
        raise HmxError(message, hint, ExitCode.USAGE) from error


def free_memory() -> int | None:
    """Return the bytes that can still be allocated on JAX's first device; None if unknown.

    On a CPU these are the available bytes according to the kernel, or those left to the control group of this process.
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


def known_memory(cfg: Config) -> int | None:
    """Return the bytes that an update takes, over all devices; None if code of the user does not define them."""
    return None if has_own_code(cfg) or not facts_known(cfg.env) else run_memory(cfg).total_bytes


def memory_problem(cfg: Config) -> HmxError | None:
    """Return an error if a run needs more memory than is free; None if it fits or if its size is unknown.

    The replay buffer of Q-learning is by far its largest allocation, and its size is known beforehand (with the
    environment of an extra, once that has been built). For PPO, the lowest estimate must fit.
    """
    free = free_memory()
    if free is None or has_own_code(cfg) or not facts_known(cfg.env):
        return None
    if not find_algorithm(cfg).replays:
        return _rollout_problem(cfg, free)
    memory = q_memory(cfg)
    if memory.total_bytes <= free:
        return None
    slot, number = stored_bytes(cfg), cfg.replay.capacity * cfg.run.num_seeds
    message = (
        f"not enough memory: about {memory.total_bytes:,} bytes needed ({number * slot:,} of them for "
        f"{cfg.run.num_seeds} x {cfg.replay.capacity:,} transitions of {slot:,} B), {free:,} free"
    )
    fits = largest_capacity(cfg, free)
    hint = f"--set replay.capacity={fits}" if fits else "reduce run.num_seeds or env.num_envs"
    return HmxError(message, hint, ExitCode.USAGE)


def _rollout_problem(cfg: Config, free: int) -> HmxError | None:
    """Return an error if not even the lowest estimate for PPO fits; accelerators share the environments."""
    devices = 1 if jax.local_devices()[0].platform == "cpu" else cfg.run.devices or jax.device_count()

    def needed(num_envs: int) -> int:
        return run_memory(replace(cfg, {"env.num_envs": num_envs})).total_bytes_low // devices

    if needed(cfg.env.num_envs) <= free:
        return None
    fits = 1 << (cfg.env.num_envs.bit_length() - 1)
    while fits > 1 and needed(fits) > free:
        fits //= 2
    message = f"not enough memory: at least {needed(cfg.env.num_envs):,} bytes needed, {free:,} free"
    hint = f"--num-envs {fits}" if needed(fits) <= free else "reduce algo.num_steps, run.num_seeds or the network"
    return HmxError(message, hint, ExitCode.USAGE)
