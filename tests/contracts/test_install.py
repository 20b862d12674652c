"""`make` installs with uv, and with pip where uv fails; it stops where pip fails too."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def script(path: Path, code: int) -> None:
    """A program that writes its words to a log, and fails with a code if it is to install hmx."""
    path.write_text(
        f'#!/bin/sh\necho "{path.name} $*" >> "{path.parent}/log"\ncase "$*" in *--editable*) exit {code};; esac\n'
    )
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("uv", "pip", "installers"), [(0, 0, ["uv pip"]), (2, 0, ["uv pip", "python -m"]), (2, 1, ["uv pip", "python -m"])]
)
def test_pip_installs_where_uv_fails(tmp_path: Path, uv: int, pip: int, installers: list[str]) -> None:
    programs = tmp_path / "venv" / "bin"
    programs.mkdir(parents=True)
    (tmp_path / "venv" / ".created").touch()
    script(programs / "uv", uv)
    script(programs / "python", pip)
    done = subprocess.run(
        ["make", "--silent", "install", f"VENV={tmp_path / 'venv'}", "PINS="], cwd=ROOT, capture_output=True, text=True
    )
    first, *commands = (programs / "log").read_text().splitlines()
    assert first == "python -m pip -q --disable-pip-version-check install uv"
    assert [line[: len("uv pip")] if line.startswith("uv") else line[:9] for line in commands] == installers
    assert all(line.endswith("--editable .") for line in commands)
    assert [done.returncode == 0, (tmp_path / "venv" / ".installed").exists()] == [not pip] * 2
