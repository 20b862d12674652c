"""Enable the persistent compilation cache, so that a second start of the same run compiles nothing."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

MAX_BYTES = 2 << 30
"""Largest size of the cache, over all processors; a program of HackMatrix has a few MB."""


def cache_folder(environ: Mapping[str, str] | None = None) -> Path:
    """Return the folder of compiled programs: `HMX_CACHE_DIR`, or `hmx/jax` in the user's cache folder.

    Raises:
        RuntimeError: there is no home folder.
    """
    environ = os.environ if environ is None else environ
    if environ.get("HMX_CACHE_DIR"):
        return Path(environ["HMX_CACHE_DIR"]).expanduser()
    base = environ.get("XDG_CACHE_HOME", "")
    # According to the XDG specification, relative paths are ignored.
    root = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    return root / "hmx" / "jax"


def enable_cache(environ: Mapping[str, str] | None = None) -> str | None:
    """Enable the cache, unless the process has one already; return a warning if that fails."""
    config: Any = jax.config
    if config.jax_compilation_cache_dir:
        return None
    try:
        folder = cache_folder(environ) / processor()
        folder.mkdir(parents=True, exist_ok=True)
        trim(folder.parent)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(f"no permission to write {folder}")
    except (OSError, RuntimeError) as error:
        return f"cannot cache compiled programs: {error}; set HMX_CACHE_DIR to another folder"
    config.update("jax_compilation_cache_dir", str(folder))
    config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
    return None


def trim(folder: Path, limit: int = MAX_BYTES) -> None:
    """Delete the programs that were not used for the longest time, until the rest has at most `limit` bytes.

    JAX's own limit needs the package filelock, and so works only where that happens to be installed.
    """
    with contextlib.suppress(OSError):  # another process deletes too; the cache works without being trimmed
        found = [(path.stat(), path) for path in folder.rglob("*-cache")]
        size = sum(stat.st_size for stat, _ in found)
        for stat, path in sorted(found, key=lambda item: max(item[0].st_atime, item[0].st_mtime)):
            if size <= limit:
                break
            path.unlink(missing_ok=True)
            size -= stat.st_size


def processor() -> str:
    """Return a name for the kind of processor, since machines that share a home folder may need different code."""
    try:
        head = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
        facts = "\n".join(line for line in head.splitlines() if line.startswith(("model name", "flags", "Features")))
    except OSError:
        facts = ""
    return f"{platform.machine()}-{hashlib.sha256((facts or platform.platform()).encode()).hexdigest()[:10]}"
