"""Estimates and caches that fail: each warns, and training continues without it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import pytest
from runs.test_lowered import arguments, bits, end_of, folder, pair, session

from hmx.config.schema import EnvConfig
from hmx.errors import HmxError, Unavailable, optional
from hmx.registry import environments
from hmx.registry.load import load
from hmx.reports.bench import measure
from hmx.reports.environments import list_environments
from hmx.runs import chunk, compilation, device_memory, lowered, memory
from hmx.runs.chunk import compile_chunk
from hmx.runs.compilation import CompileTimer, compile_for_one_call, enable_cache
from hmx.runs.lowered import LoweredProgram, LoweredPrograms
from hmx.runs.memory import fits, memory_problem, placed, run_memory
from hmx.runs.session import Session, open_session

__all__ = ["folder"]  # a fixture

KINDS = (AttributeError, TypeError, RuntimeError, OSError)

Break = Callable[[Any, str], None]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def broken(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Break:
    """Replace a function by one that raises, as a newer JAX may."""

    def change(owner: Any, name: str) -> None:
        def gone(*given: Any, **named: Any) -> Any:
            raise request.param("gone")

        monkeypatch.setattr(owner, name, gone)

    return change


@pytest.fixture(scope="module")
def small() -> Session:
    return session("ppo")


def test_an_error_becomes_a_warning_and_an_error_of_the_user_stays() -> None:
    with pytest.warns(Unavailable, match=r"^cannot estimate it; continuing without it: ValueError: two lines$"):  # noqa: SIM117
        with optional("estimate it"):
            raise ValueError("two\nlines")
    with pytest.raises(HmxError, match="refused"), optional("estimate it"):
        raise HmxError("refused")
    with pytest.raises(KeyboardInterrupt), optional("estimate it"):
        raise KeyboardInterrupt


def accepted(made: Session, warning: str) -> None:
    """Check that a run is accepted with memory of unknown size."""
    with pytest.warns(Unavailable, match=warning):
        assert placed(made).cfg == made.cfg
    with pytest.warns(Unavailable, match=warning):
        assert memory_problem(made) is None and fits(made)
    with pytest.warns(Unavailable, match=warning):
        assert run_memory(made) is None


def test_an_update_of_unknown_size_is_accepted(broken: Break, small: Session) -> None:
    broken(chunk, "peak_bytes")
    accepted(small, "cannot estimate the memory of an update")


def test_parts_of_jax_that_are_gone_make_the_size_unknown(small: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("jax.interpreters.partial_eval.dce_jaxpr")
    accepted(small, "cannot estimate the memory of an update.*ImportError")


def test_a_state_of_unknown_size_is_accepted(broken: Break, small: Session) -> None:
    broken(memory, "state_bytes")
    accepted(small, "cannot estimate the memory of the state")


def test_free_memory_that_cannot_be_measured_is_unknown(broken: Break, monkeypatch: pytest.MonkeyPatch) -> None:
    device = SimpleNamespace(platform="gpu", memory_stats=None)
    broken(device, "memory_stats")
    monkeypatch.setattr(jax, "local_devices", lambda: [device])
    with pytest.warns(Unavailable, match="cannot measure the free memory"):
        assert device_memory.free_memory() is None
    device.platform = "cpu"
    broken(device_memory, "_available")
    with pytest.warns(Unavailable, match="cannot measure the free memory"):
        assert device_memory.free_memory() is None


def test_a_program_of_unknown_size_is_compiled_and_runs(broken: Break) -> None:
    compiled = jax.jit(lambda x: x + 1).lower(1).compile()
    broken(jax.stages.Compiled, "memory_analysis")
    with pytest.warns(Unavailable, match="cannot read the memory of a compiled program"):
        assert chunk.memory_bytes_of(compiled) == 0


STORED = [
    pytest.param(LoweredProgram, "_exported", True, id="found"),
    pytest.param(LoweredProgram, "_exported", False, id="added"),
    pytest.param(LoweredPrograms, "_digest", False, id="name"),
    pytest.param(jax.export, "export", False, id="export"),
    pytest.param(lowered.atomic, "write_bytes", False, id="write"),
]


@pytest.mark.parametrize(("owner", "name", "stored"), STORED)
def test_a_program_that_cannot_be_stored_or_used_is_traced(
    broken: Break, tmp_path: Path, owner: Any, name: str, stored: bool
) -> None:
    if stored:
        assert LoweredPrograms(tmp_path).add("pair", jax.jit(pair), *arguments()) is not None
    broken(owner, name)
    with pytest.warns(Unavailable, match=r"(look for|use|store) a (stored )?program"):
        found = LoweredPrograms(tmp_path).reuse("pair", jax.jit(pair))(*arguments())
    assert bits(found) == bits(pair(*arguments()))


@pytest.fixture(scope="module")
def direct(small: Session) -> list[bytes]:
    """The results of the small run."""
    made = compile_chunk(small.algorithm, small.abstract, small.sizes.updates_per_chunk)
    return bits(end_of(small, made, None))


@pytest.mark.parametrize(("owner", "name"), [(LoweredProgram, "_exported"), (chunk, "_chunk_of")])
def test_updates_that_cannot_be_taken_from_disk_are_traced(
    tmp_path: Path, small: Session, direct: list[bytes], monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    programs, length = LoweredPrograms(tmp_path), small.sizes.updates_per_chunk
    compile_chunk(small.algorithm, small.abstract, length, programs=programs)

    def gone(*given: Any) -> Any:
        raise KeyError("gone")

    monkeypatch.setattr(owner, name, gone)
    with pytest.warns(Unavailable, match="a stored program"):
        made = compile_chunk(small.algorithm, small.abstract, length, programs=programs)
        end = end_of(small, made, programs)
    assert made.traces == 1
    assert bits(end) == direct


def test_facts_without_a_size_are_read(tmp_path: Path, broken: Break, small: Session) -> None:
    programs, length = LoweredPrograms(tmp_path), small.sizes.updates_per_chunk
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax.stages.Lowered, "compile", lambda lowered: None)
        patch.setattr(chunk, "memory_bytes_of", lambda compiled: 0)
        broken(chunk, "peak_bytes")
        with pytest.warns(Unavailable, match="the memory of an update"):
            compile_chunk(small.algorithm, small.abstract, length, programs=programs)
        assert compile_chunk(small.algorithm, small.abstract, length, programs=programs).traces == 0
    accepted(small._replace(lowered=programs), "the memory of an update")


def test_stored_programs_are_left_out_where_jax_does_not_describe_itself(folder: Path, broken: Break) -> None:
    broken(lowered, "_surroundings")
    with pytest.warns(Unavailable, match="cannot look for stored programs"):
        assert session("ppo").lowered is None


def test_a_cache_that_jax_refuses_is_one_warning(broken: Break, tmp_path: Path) -> None:
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", None)
    try:
        with pytest.MonkeyPatch.context() as patch:
            config = SimpleNamespace(jax_compilation_cache_dir=None, update=None)
            broken(config, "update")
            patch.setattr(compilation.jax, "config", config)
            assert "cannot cache compiled programs" in str(enable_cache({"HMX_CACHE_DIR": str(tmp_path)}))
    finally:
        jax.config.update("jax_compilation_cache_dir", before)


def test_compilation_is_timed_without_events_of_jax(broken: Break, folder: Path, small: Session) -> None:
    compilation._events.cache_clear()
    broken(jax.monitoring, "register_event_listener")
    with pytest.warns(Unavailable, match="cannot count the programs"):
        timer = CompileTimer("train", small.cfg)
    timer.done()
    assert CompileTimer("train", small.cfg).last in ("", "from the cache")
    broken(compilation.atomic, "write_text")
    with pytest.warns(Unavailable, match="cannot store how long compiling took"):
        timer.done()
    compilation._events.cache_clear()


@pytest.mark.parametrize("kind", KINDS)
def test_options_that_xla_refuses_are_left_out(kind: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    lowered_one = jax.jit(lambda x: x + 1).lower(1)
    compile_one = type(lowered_one).compile

    def refuse(given: Any, options: Any = None) -> Any:
        if options:
            raise kind("unknown option")
        return compile_one(given)

    monkeypatch.setattr(jax.stages.Lowered, "compile", refuse)
    assert compile_for_one_call(lowered_one)(1) == 2
    assert compilation.small_program_options() == {}


def test_a_benchmark_measures_compiling_where_the_cache_is_not_observable(broken: Break) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "interruptible", lambda build: build())
        broken(jax.monitoring, "register_event_duration_secs_listener")
        broken(jax.monitoring, "unregister_event_duration_listener")
        with pytest.warns(Unavailable, match="came from the cache"):
            _, compilation_time = measure.compiled(lambda: jax.jit(lambda x: x + 1).lower(1).compile())
    assert not compilation_time.cached and compilation_time.waited > 0


def test_environments_of_unknown_size_are_built_and_listed() -> None:
    environments.stored_sizes.cache_clear()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(environments, "files", lambda package: Path("nowhere"))
            with pytest.warns(Unavailable, match="cannot read the stored environment sizes"):
                cfg = load(preset="tiny", environ={}).config
            assert environments.known_sizes(EnvConfig(id="corridor")) is None
            assert open_session(cfg).sizes.batch_size == cfg.env.num_envs * cfg.algo.num_steps
            assert {row.observation for row in list_environments()} == {None}
    finally:
        environments.stored_sizes.cache_clear()
