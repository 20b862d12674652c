"""A made-up study of three rungs whose best trials are confirmed, and the modules beside the tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

for _place in (str(Path(__file__).parents[1]), str(Path(__file__).parents[2])):
    if _place not in sys.path:
        sys.path.insert(0, _place)


@pytest.fixture(scope="session")
def searched(tmp_path_factory) -> Path:
    """A study of 30 trials; trials 1, 11 and 24 run again on ten fresh seeds."""
    from made_studies import make_study, peak

    return make_study(
        tmp_path_factory.mktemp("study") / "lr", peak, trials=30, noise=3.0, rungs=(0.3, 1.0), confirm=3, runs=True
    )
