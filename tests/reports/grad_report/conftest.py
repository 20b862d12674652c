"""What several tests of gradient reports use."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def deterministic() -> Callable[[Path], list[dict[str, Any]]]:
    """Return the records of a run without its id and values that depend on the clock."""

    def records(run: Path) -> list[dict[str, Any]]:
        clock = {
            "schema",
            "run",
            "elapsed",
            "wall_time",
            "train/steps_per_sec",
            "train/steps_per_cpu_sec",
            "train/grad_report_seconds",
        }
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        return [{name: value for name, value in line.items() if name not in clock} for line in lines]

    return records
