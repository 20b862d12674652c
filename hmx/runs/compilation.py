"""The persistent compilation cache: a second start of the same run compiles nothing."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax


def cache_folder(environ: Mapping[str, str] | None = None) -> Path:
    """Where compiled programs are kept: `HMX_CACHE_DIR`, else `hmx/jax` in the user's cache folder.

    Raises:
        RuntimeError: there is no home folder to put it in.
    """
    environ = os.environ if environ is None else environ
    if environ.get("HMX_CACHE_DIR"):
        return Path(environ["HMX_CACHE_DIR"]).expanduser()
    base = environ.get("XDG_CACHE_HOME", "")
    # The XDG base directory specification has relative paths ignored.
    root = Path(base) if os.path.isabs(base) else Path.home() / ".cache"
    return root / "hmx" / "jax"


def enable_cache(environ: Mapping[str, str] | None = None) -> str | None:
    """Switches the cache on, unless the process has chosen one already; returns a warning where it cannot."""
    config: Any = jax.config
    if config.jax_compilation_cache_dir:
        return None
    try:
        folder = cache_folder(environ) / _processor()
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(f"no permission to write {folder}")
    except (OSError, RuntimeError) as error:
        return f"compiled programs are not kept between runs: {error}; HMX_CACHE_DIR names another folder"
    config.update("jax_compilation_cache_dir", str(folder))
    config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
    return None


def _processor() -> str:
    """A name for the kind of processor: a home folder may be shared by machines that cannot run each other's code."""
    try:
        head = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
        facts = "\n".join(line for line in head.splitlines() if line.startswith(("model name", "flags", "Features")))
    except OSError:
        facts = ""
    return f"{platform.machine()}-{hashlib.sha256((facts or platform.platform()).encode()).hexdigest()[:10]}"
