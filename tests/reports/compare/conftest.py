"""Two made-up runs that differ clearly."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def good(tmp_path: Path) -> Path:
    """Five seeds about 0.9."""
    from made_runs import flat, make_run

    return make_run(tmp_path / "good", flat(0.90, 0.91, 0.92, 0.93, 0.94), evaluated=dict.fromkeys(range(5), 0.9))


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    """Five seeds about 0.5, with another learning rate."""
    from made_runs import flat, make_run

    return make_run(
        tmp_path / "bad",
        flat(0.50, 0.52, 0.54, 0.56, 0.58),
        changes={"algo.learning_rate": 1e-3},
        evaluated=dict.fromkeys(range(5), 0.5),
    )
