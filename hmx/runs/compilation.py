"""Enable the persistent compilation cache, so that a second start of the same run compiles nothing."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import platform
import time
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.monitoring

from hmx.config import codec
from hmx.config.files import read_plain
from hmx.config.schema import Config
from hmx.errors import HmxError, one_line, optional
from hmx.records import atomic
from hmx.runs.lowered import SUFFIX
from hmx.runs.sinks import Sink

MAX_BYTES = 2 << 30
"""Largest size of the cache, over all processors; a program of HackMatrix has a few MB."""

TIMES = "hmx-times.json"
"""File next to the programs of a processor: how long compiling took."""

_KEPT = 200  # times in that file
_CACHE = "/jax/compilation_cache/cache_"
_SCHEDULER = "xla_cpu_scheduler_type"  # JAX does not promise that XLA has this option


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
    try:
        if config.jax_compilation_cache_dir:
            return None
        folder = cache_folder(environ) / processor()
        folder.mkdir(parents=True, exist_ok=True)
        trim(folder.parent)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(f"no permission to write {folder}")
        config.update("jax_compilation_cache_dir", str(folder))
        config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    except (OSError, RuntimeError) as error:
        return f"cannot cache compiled programs: {error}; set HMX_CACHE_DIR to another folder"
    except Exception as error:  # another version of JAX may have other settings
        return f"cannot cache compiled programs: {type(error).__name__}: {one_line(error)}"
    return None


def trim(folder: Path, limit: int = MAX_BYTES) -> None:
    """Delete the programs that were not used for the longest time, until the rest has at most `limit` bytes.

    JAX's own limit works only if the package filelock is installed.
    """
    with contextlib.suppress(OSError):  # another process deletes too; the cache works without being trimmed
        found = [(path.stat(), path) for path in folder.rglob("*") if path.name.endswith(("-cache", SUFFIX))]
        size = sum(stat.st_size for stat, _ in found)
        for stat, path in sorted(found, key=lambda item: max(item[0].st_atime, item[0].st_mtime)):
            if size <= limit:
                break
            path.unlink(missing_ok=True)
            path.with_name(TIMES).unlink(missing_ok=True)  # it records which programs are cached
            size -= stat.st_size


def compile_for_one_call(lowered: jax.stages.Lowered) -> jax.stages.Compiled:
    """Compile a program that is called once. On a CPU, compile three times as fast, to slower code.

    The last bits of floating-point results may differ from those of the optimised program.
    """
    fewer: dict[str, bool | str] = {"xla_backend_optimization_level": "0"}
    fewest = fewer | {"xla_cpu_use_fusion_emitters": False}
    # JAX does not promise these options of XLA. A version that lacks one refuses it at once, by errors of any kind.
    for options in (fewest, fewer) if jax.default_backend() == "cpu" else ():
        with contextlib.suppress(Exception):
            return lowered.compile(options)
    return lowered.compile()


def run_in_calling_thread() -> None:
    """Let programs on a CPU run in the thread that calls them, if JAX has not started its devices yet.

    By default another thread runs them. Waking it costs more than a program that takes microseconds.
    """
    with contextlib.suppress(Exception):  # JAX does not promise this option
        jax.config.update("jax_cpu_enable_async_dispatch", False)


def small_program_options() -> dict[str, bool | str]:
    """Return options of XLA for programs that take microseconds; none where XLA does not know them.

    On a CPU, XLA runs independent operations in several threads, which then wait in a loop for longer than a small
    program takes. The order of operations that needs the least memory leaves nothing to run in parallel.
    """
    if jax.default_backend() != "cpu":
        return {}
    options: dict[str, bool | str] = {_SCHEDULER: "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"}
    try:
        jax.jit(lambda: 0).lower().compile(options)
    except Exception:  # of any kind, as JAX does not promise the option
        return {}
    return options


@cache
def _events() -> Counter[str]:
    """Count the events of JAX, from the first call on; no events where JAX does not report them."""
    events: Counter[str] = Counter()
    with optional("count the programs that come from the cache"):
        jax.monitoring.register_event_listener(lambda event, **more: events.update([event]))
    return events


class CompileTimer:
    """Time a compilation from now on; `last` is its previous duration, if known.

    A program compiled before is only loaded from the cache, so its time does not predict that of compiling a similar
    one, with the same environment, algorithm, version of JAX and options of XLA. Both times are stored separately.

    Args:
        what: the name of the program.
        cfg: the configuration that it is compiled for.
        sizes: what it depends on apart from the configuration.
    """

    def __init__(self, what: str, cfg: Config, *sizes: object) -> None:
        folder: str | None = getattr(jax.config, "jax_compilation_cache_dir", None)
        self._file = Path(folder) / TIMES if folder else None
        flags = os.environ.get("XLA_FLAGS", "")
        self._similar = f"{what} {cfg.env.id} {cfg.algo.name} {jax.default_backend()} {jax.__version__} {flags}"
        data = {name: part for name, part in codec.to_dict(cfg).items() if name != "run"}
        self._same = codec.sha256([self._similar, data, [str(size) for size in sizes]])
        self._before, self._begun = Counter(_events()), time.monotonic()
        times = self._read()
        seconds, program = times.get(self._same), ""
        if seconds is None:
            seconds, program = times.get(self._similar), " for a similar program"
        self.last = "from the cache" if seconds == 0 else ""
        if seconds and seconds >= 1:
            self.last = f"{seconds:.0f} s last time{program}"

    def done(self) -> None:
        """Store the duration; do nothing if it cannot be written."""
        if self._file is None:
            return
        seconds, new = time.monotonic() - self._begun, _events() - self._before
        found = {self._same: seconds}
        if new[f"{_CACHE}misses"] or not new[f"{_CACHE}hits"]:
            found = {self._same: 0.0, self._similar: seconds}  # 0: not loaded from the cache yet
        kept = {key: value for key, value in self._read().items() if key not in found} | found
        with optional("store how long compiling took"):
            atomic.write_text(self._file, json.dumps(dict(list(kept.items())[-_KEPT:])))

    def _read(self) -> dict[str, float]:
        try:
            found = json.loads(read_plain(self._file) if self._file is not None else b"{}")
            return {key: float(value) for key, value in found.items() if 0 <= value < math.inf}
        except (HmxError, OSError, ValueError, TypeError, AttributeError, RecursionError):
            return {}


class CompileTimes(Sink):
    """Store how long a run compiled, unless training is not the next phase; it joins while the run compiles."""

    name = "the times of compiling"

    def __init__(self, timer: CompileTimer) -> None:
        self._timer: CompileTimer | None = timer

    def phase(self, name: str) -> None:
        """Note the end of the phase."""
        timer, self._timer = self._timer, None
        if name == "training" and timer is not None:
            timer.done()


def processor() -> str:
    """Return a name for the kind of processor, since machines that share a home folder may need different code."""
    try:
        head = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
        facts = "\n".join(line for line in head.splitlines() if line.startswith(("model name", "flags", "Features")))
    except OSError:
        facts = ""
    return f"{platform.machine()}-{hashlib.sha256((facts or platform.platform()).encode()).hexdigest()[:10]}"
