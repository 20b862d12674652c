"""What every test runs under: JAX on the CPU, strict about keys and ranks, and a terminal that never varies."""

from __future__ import annotations

import hashlib
import os
import platform
import signal
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings


def _machine() -> str:
    """A name for this processor: compiled code is only reused on the machine that made it."""
    try:
        text = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
        lines = [line for line in text.splitlines() if line.startswith(("model name", "flags", "Features"))]
    except OSError:
        lines = [platform.platform(), platform.processor()]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]


_cache_home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")

# Read by JAX when it is first imported, by this process and by the ones that tests start.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["JAX_DEBUG_KEY_REUSE"] = "1"
os.environ["JAX_NUMPY_RANK_PROMOTION"] = "raise"
os.environ["JAX_COMPILATION_CACHE_DIR"] = str(_cache_home / "hmx-tests" / f"jax-{_machine()}")
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.3"
# Compiling is what the tests spend most of their time on, and it is cheaper without optimisation. To run all of them
# as users run hmx: JAX_DISABLE_MOST_OPTIMIZATIONS=0 make test.
_UNOPTIMISED = "JAX_DISABLE_MOST_OPTIMIZATIONS"
_unoptimised = os.environ.setdefault(_UNOPTIMISED, "1") != "0"

# A terminal that is the same everywhere, and nothing taken from the developer's shell.
for _name in [*os.environ]:
    if _name.startswith(("HMX_", "WANDB_", "_HMX_")) or _name in {"FORCE_COLOR", "CLICOLOR_FORCE", "GITHUB_ACTIONS"}:
        del os.environ[_name]
os.environ.update(NO_COLOR="1", COLUMNS="100", LINES="40", TERM="dumb", WANDB_MODE="disabled", WANDB_SILENT="true")

# A script that runs the tests in the background passes ignored signals on to them and to every process they start;
# those that a test sends must be heard. A handler, unlike an ignored signal, is not inherited.
if threading.current_thread() is threading.main_thread():
    for _signum in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(_signum) is signal.SIG_IGN:
            signal.signal(_signum, signal.default_int_handler)

# The same examples on every machine, and no time limits: a slow machine is not a failure.
settings.register_profile(
    "hmx", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("hmx")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test marked `optimised`, with its fixtures and the processes that it starts, compiles as users do."""
    unoptimised = _unoptimised and item.get_closest_marker("optimised") is None
    os.environ[_UNOPTIMISED] = str(int(unoptimised))
    if unoptimised and "jax" not in sys.modules:
        return  # it reads the variable when it is imported
    import jax

    if jax.config.read("jax_disable_most_optimizations") != unoptimised:
        jax.config.update("jax_disable_most_optimizations", unoptimised)
        jax.clear_caches()
