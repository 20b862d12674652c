"""The installation of `make` says what it does and keeps the exit code of pip."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

LINES = [
    "Collecting jax==0.10.2",
    "  Downloading jax.whl",
    "Collecting numpy>=2",
    "Installing collected packages: a, b, c",
]


@pytest.fixture
def install() -> ModuleType:
    spec = importlib.util.spec_from_file_location("install", Path(__file__).parents[2] / "tools" / "install.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("code", [0, 1])
def test_phases_are_shown_and_the_exit_code_is_that_of_pip(
    install: ModuleType, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = f"import sys; print({chr(10).join(LINES)!r}); sys.exit({code})"
    monkeypatch.setattr(install, "PIP", [sys.executable, "-c", script])
    assert install.main([]) == code
    shown = capsys.readouterr()
    assert shown.out == "  collecting packages ...\n  installing 3 packages ...\n"
    assert shown.err == ("\n".join([*LINES, ""]) if code else "")


def test_terminal_names_the_package_that_is_collected(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(install, "PIP", [sys.executable, "-c", f"print({chr(10).join(LINES)!r})"])
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert install.main([]) == 0
    shown = capsys.readouterr().out.split("\r\x1b[K")
    assert shown == [
        "",
        "  collecting packages: 1, jax",
        "  collecting packages: 2, numpy",
        "  installing 3 packages ...",
        "",
    ]
