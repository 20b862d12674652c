"""Ways to run the command line: in this process, where JAX is warm, and in one of its own, as a user does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from hmx.cli.app import app

ROOT = Path(__file__).parents[2]
Invoke = Callable[..., Result]


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def now() -> Clock:
    return Clock()


@pytest.fixture
def hmx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Runs `hmx WORDS` in an empty folder, in this process."""
    monkeypatch.chdir(tmp_path)

    def invoke(*words: str) -> Result:
        return CliRunner().invoke(app, list(words), prog_name="hmx")

    return invoke


@pytest.fixture
def shell(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs `python WORDS` in an empty folder, in a process of its own."""

    def run(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *words], cwd=tmp_path, env=process_environ(**environ), capture_output=True, text=True
        )

    return run


def process_environ(**more: str) -> dict[str, str]:
    """The environment of a process that finds this source tree."""
    return {**os.environ, "PYTHONPATH": str(ROOT), **more}


@pytest.fixture
def environ() -> Callable[..., dict[str, str]]:
    """`process_environ`, for tests that start a process themselves."""
    return process_environ


LOADED = """
import sys
from hmx.__main__ import main
try:
    main()
except SystemExit:
    pass
print("loaded:", *sorted({name.partition(".")[0] for name in sys.modules}), file=sys.stderr)
"""


@pytest.fixture
def loaded(shell: Callable[..., subprocess.CompletedProcess[str]]) -> Callable[..., set[str]]:
    """The packages that `hmx WORDS` has imported by its end, in a process of its own."""

    def names(*words: str, first: str = "", **environ: str) -> set[str]:
        done = shell("-c", f"{first}\n{LOADED}", *words, **environ)
        return set(done.stderr.rpartition("loaded:")[2].split())

    return names


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder `runs/` with one finished run, `corridor`."""
    home = tmp_path_factory.mktemp("trained")
    words = ["train", "--preset", "tiny", "--steps", "4096", "--eval-episodes", "20", "--name", "corridor"]
    before = Path.cwd()
    os.chdir(home)
    try:
        result = CliRunner().invoke(app, words, prog_name="hmx")
    finally:
        os.chdir(before)
    assert result.exit_code == 0, result.stderr
    return home / "runs"
