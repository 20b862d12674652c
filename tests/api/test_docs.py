"""The examples of docs/python.md and the cells of the notebook run as they are."""

from __future__ import annotations

import ast
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


NOTEBOOKS = {
    "1-first-agent": ("trained", "reward/goal"),
    "2-own-environment": ("trained", "|"),
    "3-honest-comparison": ("better", "P(fast is better)"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_cells_of_a_notebook_run_in_order(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    notebook = json.loads((ROOT / "examples" / f"{name}.ipynb").read_text())
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(cells) > 4 and not any(cell.get("outputs") for cell in notebook["cells"])
    names: dict[str, object] = {"__name__": "__main__"}
    for number, cell in enumerate(cells):
        *statements, last = ast.parse(cell).body
        exec(compile(ast.Module(statements, []), f"cell {number}", "exec"), names)
        if isinstance(last, ast.Expr):
            print(eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names))
        else:
            exec(compile(ast.Module([last], []), f"cell {number}", "exec"), names)
    captured = capsys.readouterr()
    assert "compiling" in captured.err  # progress
    for word in NOTEBOOKS[name]:
        assert word in captured.out


def test_every_notebook_is_tested() -> None:
    assert {path.stem for path in (ROOT / "examples").glob("*.ipynb")} == set(NOTEBOOKS)
