from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

from hmx.runs.compilation import cache_folder, enable_cache, trim


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
def test_where_the_cache_lies(environ: dict[str, str], folder: Path) -> None:
    assert cache_folder(environ) == folder


def test_the_cache_is_switched_on_in_that_folder(no_cache: None, tmp_path: Path) -> None:
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
    trim(tmp_path, 400)
    assert len(list(tmp_path.rglob("*-cache"))) == 4
    trim(tmp_path, 250)
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == {"newest-cache", "used-cache", "other.txt"}


def test_enabling_the_cache_trims_it(no_cache: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trimmed: list[Path] = []
    monkeypatch.setattr("hmx.runs.compilation.trim", trimmed.append)
    enable_cache({"HMX_CACHE_DIR": str(tmp_path)})
    assert trimmed == [tmp_path]


def test_a_choice_already_made_stays(no_cache: None, tmp_path: Path) -> None:
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "chosen"))
    assert enable_cache({"HMX_CACHE_DIR": str(tmp_path / "other")}) is None
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "chosen")
    assert not (tmp_path / "other").exists()


def test_a_folder_that_cannot_be_made_is_a_warning(no_cache: None, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    warning = enable_cache({"HMX_CACHE_DIR": str(tmp_path / "file" / "cache")})
    assert warning is not None
    assert "HMX_CACHE_DIR" in warning
    assert jax.config.jax_compilation_cache_dir is None
