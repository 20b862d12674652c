"""The examples of docs/python.md and the cells of the notebook run as they are."""

from __future__ import annotations

import doctest
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of a new user."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def test_examples_of_the_page_run() -> None:
    found = doctest.testfile(str(ROOT / "docs" / "python.md"), module_relative=False)
    assert found.attempted > 20 and not found.failed


def test_cells_of_the_notebook_run_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    notebook = json.loads((ROOT / "examples" / "quickstart.ipynb").read_text())
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(cells) > 5 and not any(cell.get("outputs") for cell in notebook["cells"])
    names: dict[str, object] = {"__name__": "__main__"}
    for number, cell in enumerate(cells):
        exec(compile(cell, f"cell {number}", "exec"), names)
    captured = capsys.readouterr()
    assert "compiling" in captured.err  # progress
    assert captured.out.count("trained") >= 2 and captured.out.count("|") >= 16
