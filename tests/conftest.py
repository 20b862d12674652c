"""What every test runs under: JAX on the CPU, strict about keys and ranks, and a terminal that never varies."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import hashlib
import importlib
import importlib.metadata
import json
import os
import platform
import resource
import signal
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jaxtyping
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


_DAY = 86400.0  # seconds
_cache_home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")

# Read by JAX when it is first imported, by this process and by the ones that tests start.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["JAX_DEBUG_KEY_REUSE"] = "1"
os.environ["JAX_NUMPY_RANK_PROMOTION"] = "raise"
os.environ["JAX_INCLUDE_FULL_TRACEBACKS_IN_LOCATIONS"] = "0"  # as in the commands, to compile faster
os.environ["JAX_COMPILATION_CACHE_DIR"] = str(_cache_home / "hmx-tests" / f"jax-{_machine()}")
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.05"  # reading a smaller program takes as long
# Tests spend most of their time on compiling: it takes a fifth without LLVM's optimisation and without the newer way to
# emit fusions. Tests marked `long_run` run their programs for longer and take least time with the first level of it.
# With `XLA_FLAGS=` in the environment everything is compiled as users do.
_FLAGS = (
    "--xla_backend_optimization_level={} --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
)
_QUICK, _BRISK = _FLAGS.format(0), _FLAGS.format(1)
if importlib.metadata.version("jaxlib").startswith("0.10."):  # XLA ends the process over a flag that it does not know
    # a worker of xdist has the flags from the process that starts it
    os.environ.setdefault("XLA_FLAGS", _BRISK if "--only-long-runs" in sys.argv else _QUICK)

# A terminal that is the same everywhere, and nothing taken from the developer's shell.
for _name in [*os.environ]:
    if _name.startswith(("HMX_", "WANDB_", "_HMX_")) or _name in {"FORCE_COLOR", "CLICOLOR_FORCE", "GITHUB_ACTIONS"}:
        del os.environ[_name]
os.environ.update(NO_COLOR="1", COLUMNS="100", LINES="40", TERM="dumb", WANDB_MODE="disabled", WANDB_SILENT="true")

# A script that runs the tests in the background passes ignored signals on to them and to every process they start;
# those that a test sends must be heard. A handler, unlike an ignored signal, is not inherited.
if threading.current_thread() is threading.main_thread():
    for _signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(_signum) is signal.SIG_IGN:
            signal.signal(_signum, signal.SIG_DFL if _signum == signal.SIGHUP else signal.default_int_handler)

# What tests allow to run is remembered apart from what the developer does.
_state = tempfile.TemporaryDirectory(prefix="hmx-tests-", ignore_cleanup_errors=True)
os.environ["XDG_STATE_HOME"] = _state.name

# The same examples on every machine, and no time limits: a slow machine is not a failure.
settings.register_profile(
    "hmx", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("hmx")

# Functions of the numeric packages check the types and shapes of their arguments. Before anything imports them.
_tests = str(Path(__file__).parent)
if _tests not in sys.path:
    sys.path.insert(0, _tests)
importlib.import_module("shape_checks").install()


# Markers of tests that most processes skip: the option that runs nothing else, the flags with which they are skipped,
# and who runs them.
_APART = {
    "long_run": ("--only-long-runs", (_QUICK,), "`make test` runs it with --only-long-runs"),
    "optimised": ("--only-optimised", (_QUICK, _BRISK), "`make test` runs it with XLA_FLAGS="),
    "thorough": ("--only-thorough", (_QUICK, _BRISK), "`make test-optimised` runs it"),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--only-long-runs` and `--only-optimised`, which `make test` runs in processes of their own, and others."""
    for marker, (option, _, _) in _APART.items():
        parser.addoption(option, action="store_true", help=f"Run only the tests marked `{marker}`.")
    parser.addoption(
        "--slurm", action="store_true", help="Run the tests that submit jobs to the SLURM of this machine."
    )
    parser.addoption("--faults", type=int, default=4, help="Calls to the file system to fail, per command; 0 for all.")


def pytest_configure(config: pytest.Config) -> None:
    """Delete lowered programs of older versions of hmx: every change of its text leads to new ones."""
    if hasattr(config, "workerinput"):
        return
    for path in Path(os.environ["JAX_COMPILATION_CACHE_DIR"]).glob("*.lowered"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _DAY:
                path.unlink()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where only tests with a marker run, skip the files without it: importing them takes longer than these tests."""
    if collection_path.suffix != ".py":
        return None
    text = collection_path.read_text()
    apart = ((marker, option) for marker, (option, _, _) in _APART.items())
    return any(config.getoption(option) and f"mark.{marker}" not in text for marker, option in apart) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip tests marked `long_run`, `optimised` or `thorough` in a process that compiles with less optimisation.

    The tests of HackMatrix come first, where one process runs them all: two would compile the same large programs.
    """
    items.sort(key=lambda item: item.path.parent.name != "hackmatrix")
    for marker, (option, too_few, who) in _APART.items():
        marked = [item for item in items if item.get_closest_marker(marker) is not None]
        if config.getoption(option):
            config.hook.pytest_deselected(items=[item for item in items if item not in marked])
            items[:] = marked
        if os.environ.get("XLA_FLAGS") in too_few:
            for item in marked:
                item.add_marker(pytest.mark.skip(reason=who))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Name a file to the workers of xdist for `pytest_collection`."""
    node.workerinput["collecting"] = str(Path(_state.name) / "collecting")


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[object]:
    """Let one worker of xdist collect before the others, which then find the bytecode that it wrote.

    Compiling tests and checked modules takes longer than importing them, and all workers would compile all of them.
    """
    if not hasattr(session.config, "workerinput"):
        return (yield)
    with open(session.config.workerinput["collecting"], "w") as file:  # unlocked when it is closed
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(file, fcntl.LOCK_SH)
            fcntl.flock(file, fcntl.LOCK_UN)
        return (yield)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Exclude what collection made from garbage collection, which takes a few percent of the time otherwise."""
    del session
    if "jax" in sys.modules:
        _share_mlir_contexts()
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


_LARGE = 2e9  # bytes
_WITHOUT_KEY_CHECKS = {"cli", "gates", "jobs", "study"}  # folders
_module: list[Path] = []
_per_thread = threading.local()


def _share_mlir_contexts() -> None:
    """Let a thread lower its programs in one MLIR context.

    Making a context takes 3 ms, longer than the lowering of a single operation, and half of the memory of the tests.
    """
    mlir = sys.modules["jax._src.interpreters.mlir"]
    make = mlir.make_ir_context

    def context_of_thread() -> Any:
        if not hasattr(_per_thread, "context"):
            _per_thread.context = make()
        return _per_thread.context

    mlir.make_ir_context = context_of_thread  # type: ignore[attr-defined]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Free compiled programs when the tests of another module begin and the process has grown large.

    Keys are checked for reuse, and arguments for their types and shapes, where the functions that use them are tested,
    and where each algorithm trains. Commands and jobs trace the same functions again and again, faster without.
    """
    if _module != [item.path]:
        _module[:] = [item.path]
        checks = item.path.parent.name not in _WITHOUT_KEY_CHECKS or item.path.stem == "test_exactness"
        os.environ["JAX_DEBUG_KEY_REUSE"] = str(int(checks))
        jaxtyping.config.update("jaxtyping_disable", not checks)
        if "jax" in sys.modules:
            sys.modules["jax"].config.update("jax_debug_key_reuse", checks)
            if _resident_bytes() > _LARGE:
                sys.modules["jax"].clear_caches()
                vars(_per_thread).pop("context", None)


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


@pytest.fixture(scope="session")
def shared_programs() -> Any:
    """The compiled programs of the runs in the modules that use `compiled_once`."""
    from hmx.runs.programs import Programs

    return Programs()


@pytest.fixture(scope="module")
def compiled_once(shared_programs: Any) -> Iterator[None]:
    """Runs of the modules that use this share their compiled programs, as the runs of a study do.

    Tracing and compiling take most of the time of a run of a few updates. Do not use it where a test changes a function
    that a program is made of, or the file of an environment.
    """
    from hmx.runs import programs, session

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(programs, "MOST", 50)
        make = session.make_session
        patch.setattr(session, "make_session", lambda task, env, given=None: make(task, env, given or shared_programs))
        yield


def _lines(run: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert {record.pop("schema") for record in found} <= {1, 2}
    assert len({record.pop("run", "") for record in found} - {""}) <= 1
    return found


@pytest.fixture(scope="session")
def lines() -> Callable[[Path], list[dict[str, Any]]]:
    """The records of a run."""
    return _lines


@pytest.fixture(scope="session")
def deterministic() -> Callable[[Path], list[dict[str, Any]]]:
    """The records of a run without what depends on the clock."""
    clock = {"elapsed", "wall_time", "train/steps_per_sec", "train/steps_per_cpu_sec", "train/grad_report_seconds"}
    return lambda run: [{k: v for k, v in record.items() if k not in clock} for record in _lines(run)]


@pytest.fixture(scope="session")
def unpack() -> Callable[[int, Path], Any]:
    """A run folder as it was published, by the schema of its checkpoints, made once by the code of its day.

    Each is a run of the corridor that was stopped after update 4 of 8, with checkpoints at 2 and 4.
    """

    from hmx.records.paths import RunPaths

    def make(schema: int, root: Path) -> RunPaths:
        with tarfile.open(Path(__file__).parent / "data" / f"run-schema-{schema}.tar.gz") as archive:
            archive.extractall(root, filter="data")
        return RunPaths(root, "corridor")

    return make


@pytest.fixture(scope="session")
def fingerprint() -> dict[str, str]:
    """What the bits of a result depend on besides the code: the processor, the compiler and its flags."""
    flags = os.environ.get("XLA_FLAGS", "")
    return {"machine": _machine(), "jaxlib": importlib.metadata.version("jaxlib"), "xla_flags": flags}
