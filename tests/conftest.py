"""What every test runs under: JAX on the CPU, strict about keys and ranks, and a terminal that never varies."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import os
import platform
import signal
import sys
import threading
from pathlib import Path
from typing import Any

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
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
# Compiling is what the tests spend most of their time on: it takes a fifth without LLVM's optimisation and without the
# newer way to emit fusions. `XLA_FLAGS= make test` compiles everything as users do.
_QUICK = (
    "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
)
_AS_USERS = {"xla_backend_optimization_level": 3, "xla_cpu_use_fusion_emitters": True}
if importlib.metadata.version("jaxlib").startswith("0.10."):  # XLA ends the process over a flag that it does not know
    os.environ.setdefault("XLA_FLAGS", _QUICK)

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


def _compile(as_users: bool) -> None:
    """Sets how this process compiles from now on, and forgets what it compiled otherwise."""
    from jax._src import compiler  # options of one `jax.jit` are public, those of all are not

    plain = getattr(compiler.get_compile_options, "__wrapped__", compiler.get_compile_options)
    if as_users == (compiler.get_compile_options is not plain):
        return

    @functools.wraps(plain)
    def optimising(*args: Any, env_options_overrides: Any = None, **more: Any) -> Any:
        return plain(*args, env_options_overrides={**_AS_USERS, **(env_options_overrides or {})}, **more)

    compiler.get_compile_options = optimising if as_users else plain
    sys.modules["jax"].clear_caches()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test marked `optimised` and its fixtures compile as users do, in this process."""
    as_users = item.get_closest_marker("optimised") is not None
    if os.environ.get("XLA_FLAGS") == _QUICK and (as_users or "jax" in sys.modules):
        _compile(as_users)
