"""One run of the example algorithm, and permissions that no other test sees."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from api_runs import TINY

import hmx

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the examples, and a run of four updates of `a2c.py`."""
    folder = tmp_path_factory.mktemp("lab")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        shutil.copy(EXAMPLES / "a2c.py", folder)
        hmx.train({**TINY, "algo.name": "./a2c.py", "run.name": "first"}, progress=False)
    return folder


@pytest.fixture
def place(lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder of a test: that of `lab`, with code as untrusted as in a new process of another user."""
    from hmx.registry import trust

    monkeypatch.chdir(lab)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(trust, "_allowed", [])
    yield lab
