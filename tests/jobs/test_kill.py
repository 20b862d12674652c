"""A handful of kills; `benchmarks/kill_harness.py --kills 100` is the same code for longer."""

from __future__ import annotations

import importlib.util
import json
import random
import sys
from pathlib import Path
from types import ModuleType

import pytest

from hmx.records import checkpoints as records
from hmx.records.paths import RunPaths


def _harness() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "kill_harness.py"
    spec = importlib.util.spec_from_file_location("kill_harness", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # dataclasses look their module up by name
    sys.modules["kill_harness"] = module
    spec.loader.exec_module(module)
    return module


harness = _harness()


@pytest.mark.slow
def test_checkpoints_and_metrics_survive_kills(tmp_path: Path) -> None:
    tally = harness.harness(tmp_path, kills=3, updates=16, seed=3)
    assert tally.kills == 3
    assert tally.runs >= 1
    assert tally.while_saving >= 1


@pytest.fixture
def run(tmp_path: Path) -> RunPaths:
    """Two checkpoints and the metrics that belong to them."""
    paths = RunPaths(tmp_path, "r")
    for update in (1, 2):
        folder = paths.checkpoint(update)
        folder.mkdir(parents=True)
        (folder / "data").write_bytes(random.Random(update).randbytes(9))
        records.write_manifest(folder, update)
    paths.metrics.write_text("".join(json.dumps({"update": u}) + "\n" for u in (1, 2, 3)))
    return paths


def test_the_harness_counts_kills_and_replays(run: RunPaths) -> None:
    (run.checkpoints / ".tmp-3-77").mkdir()
    with run.metrics.open("a") as file:
        file.write('{"upd')
    tally = harness.Tally()
    assert harness.examine(run, 77, 1, tally) == 2
    assert (tally.while_saving, tally.torn_lines, tally.replayed) == (1, 1, 1)
    harness.examine(run, 78, 1, tally)
    assert tally.while_saving == 1, "left by another process"


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda run: (run.checkpoint(2) / "data").write_bytes(b"123456789"), "not whole"),
        (lambda run: run.checkpoint(2).rename(run.checkpoints / "gone"), "is now 1"),
        (lambda run: run.metrics.write_text('{"update":1}\n{"update":3}\n'), "gap"),
        (lambda run: run.metrics.write_text('{"update":1}\n{"update":1}\n'), "duplicate"),
        (lambda run: run.metrics.write_text('{"update":1}\n'), "only up to update 1"),
    ],
)
def test_harness_detects_losses(harm: object, words: str, run: RunPaths) -> None:
    harm(run)  # type: ignore[operator]
    with pytest.raises(harness.Lost, match=words):
        harness.examine(run, 1, 2, harness.Tally())
