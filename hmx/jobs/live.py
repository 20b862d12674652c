"""What `hmx board` shows of each run, read quickly: the ends and a few samples of its files."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path

from hmx.config.derive import derive
from hmx.config.load import load
from hmx.errors import HmxError
from hmx.jobs.requests import ListRequest
from hmx.jobs.runs import RETURN, RunRow, finite, list_runs
from hmx.records import jsonl
from hmx.records.paths import RunPaths

_SAMPLES = 24  # values of a curve


@dataclasses.dataclass(frozen=True)
class LiveRun:
    """A run in the list."""

    row: RunRow
    curve: tuple[float, ...]  # returns at even distances in the file
    total_steps: int | None  # per seed; None unless it trains
    seconds_left: float | None


def live_runs(root: Path) -> list[LiveRun]:
    """Return the runs below a folder, the newest first."""
    return [_live(row) for row in list_runs(root, ListRequest(sort="age")).runs]


def _live(row: RunRow) -> LiveRun:
    paths = RunPaths(row.path.parent, row.name)
    curve: tuple[float, ...] = ()
    with contextlib.suppress(OSError):
        values = (finite(record.get(RETURN)) for record in jsonl.sample(paths.metrics, _SAMPLES))
        curve = tuple(value for value in values if value is not None)
    total = left = None
    if row.state == "running":
        with contextlib.suppress(HmxError):
            config = load(file=paths.config, environ={}, check=False).config
            total = derive(config).total_env_steps
            if row.steps_per_sec:
                left = max(total - row.env_steps, 0) * config.run.num_seeds / row.steps_per_sec
    return LiveRun(row, curve, total, left)
