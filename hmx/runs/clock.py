"""The clock of a run, which continues over its resumptions."""

from __future__ import annotations

import time
from pathlib import Path

from hmx.config.files import retrying
from hmx.records import jsonl


class RunClock:
    """A monotonic clock that continues from the last record of a run, given by its `elapsed` and its `wall_time`."""

    def __init__(self, elapsed: float = 0.0, wall_time: float = 0.0) -> None:
        self._elapsed = elapsed
        self._wall_time = max(wall_time, time.time())
        self._start = time.monotonic()

    @classmethod
    def after(cls, metrics: Path) -> RunClock:
        """Return the clock that continues a metrics file; from 0 if the file has no usable record.

        Raises:
            Unreadable: the system fails to read the file (exit code 3).
        """
        try:
            records = retrying(metrics, lambda: jsonl.tail(metrics))
        except OSError:
            records = []
        return cls(*(max((_number(r.get(name)) for r in records), default=0.0) for name in ("elapsed", "wall_time")))

    def now(self) -> dict[str, float]:
        """Return `elapsed`, the seconds of training over all resumptions, and `wall_time`, the seconds since 1970."""
        seconds = time.monotonic() - self._start
        return {"elapsed": self._elapsed + seconds, "wall_time": self._wall_time + seconds}


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and 0 <= value < 1e15 else 0.0
