from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import pytest
from jax.experimental.compilation_cache import compilation_cache

from hmx.config.schema import Config
from hmx.errors import Unavailable
from hmx.runs.compilation import (
    TIMES,
    CompileTimer,
    CompileTimes,
    cache_folder,
    compile_for_one_call,
    enable_cache,
    small_program_options,
    trim,
)


@pytest.fixture
def no_cache() -> Iterator[None]:
    before = jax.config.jax_compilation_cache_dir
    threshold = jax.config.jax_persistent_cache_min_compile_time_secs
    jax.config.update("jax_compilation_cache_dir", None)
    yield
    jax.config.update("jax_compilation_cache_dir", before)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", threshold)


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"HMX_CACHE_DIR": "/a/b", "XDG_CACHE_HOME": "/c"}, Path("/a/b")),
        ({"XDG_CACHE_HOME": "/c"}, Path("/c/hmx/jax")),
        ({"XDG_CACHE_HOME": "relative"}, Path.home() / ".cache/hmx/jax"),
        ({}, Path.home() / ".cache/hmx/jax"),
    ],
)
def test_cache_has_its_documented_folder(environ: dict[str, str], folder: Path) -> None:
    assert cache_folder(environ) == folder


def test_cache_is_enabled_in_its_folder(no_cache: None, tmp_path: Path) -> None:
    assert enable_cache({"HMX_CACHE_DIR": str(tmp_path / "new")}) is None
    folder = Path(str(jax.config.jax_compilation_cache_dir))
    assert folder.parent == tmp_path / "new"
    assert folder.is_dir()


def test_programs_not_used_for_longest_are_deleted_above_the_limit(tmp_path: Path) -> None:
    for age, name in enumerate(("newest", "old", "oldest", "used")):
        path = tmp_path / "cpu" / f"{name}-cache"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x" * 100)
        written = 1000.0 - 10 * age
        os.utime(path, (2000.0 if name == "used" else written, written))
    (tmp_path / "other.txt").write_text("not a program" * 100)
    times = tmp_path / "cpu" / TIMES
    times.write_text("{}")
    trim(tmp_path, 400)
    assert len(list(tmp_path.rglob("*-cache"))) == 4 and times.exists()
    trim(tmp_path, 250)
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == {"newest-cache", "used-cache", "other.txt"}


def test_enabling_the_cache_trims_it(no_cache: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trimmed: list[Path] = []
    monkeypatch.setattr("hmx.runs.compilation.trim", trimmed.append)
    enable_cache({"HMX_CACHE_DIR": str(tmp_path)})
    assert trimmed == [tmp_path]


def test_existing_cache_setting_is_kept(no_cache: None, tmp_path: Path) -> None:
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "chosen"))
    assert enable_cache({"HMX_CACHE_DIR": str(tmp_path / "other")}) is None
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "chosen")
    assert not (tmp_path / "other").exists()


def test_unwritable_cache_folder_causes_a_warning(no_cache: None, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    warning = enable_cache({"HMX_CACHE_DIR": str(tmp_path / "file" / "cache")})
    assert warning is not None
    assert "HMX_CACHE_DIR" in warning
    assert jax.config.jax_compilation_cache_dir is None


def timed(length: int, *, run: bool = False) -> str:
    """Return what is said before a program of that length is compiled, and compile it."""
    timer = CompileTimer("test", Config(), length)
    if run:
        sink = CompileTimes(timer)
        sink.phase("training")
        return timer.last
    jax.clear_caches()

    def slow(x: jax.Array) -> jax.Array:
        for i in range(length):
            x = jnp.sin(x) * (i + 1.5)
        return x

    jax.jit(slow).lower(jnp.zeros(8)).compile()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hmx.runs.compilation.time.monotonic", lambda: timer._begun + 44)
        timer.done()
    return timer.last


@pytest.fixture
def cached(no_cache: None, tmp_path: Path) -> Path:
    """Cache every program in a folder of this test; return the file of times."""
    compilation_cache.reset_cache()
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    return tmp_path / TIMES


def test_compile_and_load_times_are_separate(cached: Path) -> None:
    assert timed(9) == "", "nothing is known"
    assert timed(9) == "from the cache", "the time of compiling it does not count"
    assert timed(9) == "44 s last time", "that of loading it does"
    assert timed(10) == "44 s last time for a similar program"
    for path in cached.parent.glob("*-cache"):
        path.unlink()
    timed(9)
    assert timed(9) == "from the cache", "it was compiled again, not loaded"


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": "x"}', '{"a": null}', "\x00", '{"a": NaN, "b": -1}'])
def test_a_damaged_file_of_times_is_replaced(cached: Path, text: str) -> None:
    cached.write_text(text)
    assert timed(9) == ""
    assert timed(9) == "from the cache"


def test_times_below_a_second_are_not_shown(cached: Path) -> None:
    timed(9)
    times = json.loads(cached.read_text())
    cached.write_text(json.dumps(dict.fromkeys(times, 0.4)))
    assert timed(9) == timed(10) == ""


def test_unwritable_times_are_dropped_with_a_warning(cached: Path) -> None:
    cached.mkdir()
    with pytest.warns(Unavailable, match="cannot store how long compiling took"):
        assert timed(9) == timed(9) == ""


def test_the_file_of_times_stays_small(cached: Path) -> None:
    cached.write_text(json.dumps({f"old {i}": 1.0 for i in range(500)}))
    timed(9)
    kept = json.loads(cached.read_text())
    assert len(kept) == 200 and "old 499" in kept and "old 0" not in kept


def test_only_finished_compilations_are_recorded(cached: Path) -> None:
    sink = CompileTimes(CompileTimer("test", Config(), 1))
    for phase in ("stopping", "training"):
        sink.phase(phase)
    assert not cached.exists()
    assert timed(1, run=True) == ""
    assert cached.exists()


def test_compile_times_need_a_cache(no_cache: None) -> None:
    assert timed(9) == timed(9) == ""


@pytest.mark.parametrize("known", [2, 1, 0])
def test_single_use_program_is_compiled_with_fewer_optimisations(known: int) -> None:
    lowered, asked = jax.jit(lambda x: x + 1).lower(1), []

    class Spy:
        def compile(self, options: Any = None) -> Any:
            asked.append(options)
            return lowered.compile({"xla_no_such_option": "0"} if len(options or {}) > known else None)

    assert compile_for_one_call(cast(jax.stages.Lowered, Spy()))(2) == 3
    assert [len(options or {}) for options in asked] == [2, 1, 0][: 3 - known]
    assert all(options["xla_backend_optimization_level"] == "0" for options in asked if options)


def test_options_for_small_programs_change_no_bit() -> None:
    options = small_program_options()
    assert options
    x = jnp.linspace(-3.0, 3.0, 64).reshape(8, 8)

    def network(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jax.nn.softmax(jnp.tanh(x @ x.T)), (x * 3.0).sum(axis=1)

    one, other = jax.jit(network)(x), jax.jit(network, compiler_options=options)(x)
    assert all((a == b).all() for a, b in zip(one, other, strict=True))


def test_an_option_that_xla_lacks_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hmx.runs.compilation._SCHEDULER", "xla_cpu_no_such_option")
    assert small_program_options() == {}
