"""The metrics of one agent as rules see them: running extremes, the first values and the latest ones."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from hmx.config.schema import Config

WINDOW = 8
"""Values that rules average over."""


@dataclass
class Track:
    """One metric so far; adding a value takes constant time and memory."""

    count: int = 0
    low: float = math.inf
    high: float = -math.inf
    first: float = math.nan  # mean of the first WINDOW values
    best: float = -math.inf  # highest mean of WINDOW values in a row
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))

    def add(self, value: float) -> None:
        """Take the next value."""
        self.count += 1
        self.recent.append(value)
        self.low, self.high = min(self.low, value), max(self.high, value)
        if self.count <= WINDOW:
            self.first = self.mean
        if self.count >= WINDOW:
            self.best = max(self.best, self.mean)

    @property
    def mean(self) -> float:
        """The mean of the latest values; NaN without any."""
        return math.fsum(self.recent) / len(self.recent) if self.recent else math.nan

    @property
    def last(self) -> float:
        """The latest value; NaN without any."""
        return self.recent[-1] if self.recent else math.nan

    @property
    def constant(self) -> bool:
        """Whether all values so far were equal, up to rounding; true without any."""
        return not self.count or self.high - self.low <= 1e-6 * max(abs(self.high), abs(self.low))

    @property
    def full(self) -> bool:
        """Whether there are enough values for an average."""
        return self.count >= WINDOW


_NEVER = Track()


@dataclass
class History:
    """The records of one agent so far.

    Args:
        cfg: of the run.
        total: updates of the whole run.
    """

    cfg: Config
    total: int
    update: int = 0
    elapsed: float = 0.0  # seconds of training
    tracks: dict[str, Track] = field(default_factory=dict)

    def add(self, update: int, record: Mapping[str, object]) -> None:
        """Take the record of an update; values that are not finite are left out."""
        self.update = update
        for name, value in record.items():
            if type(value) not in (int, float) or not math.isfinite(value):  # type: ignore[arg-type]
                continue
            if "/" in name and not name.startswith(("grad_norm/", "score/", "replay/")):
                self.tracks.setdefault(name, Track()).add(value)  # type: ignore[arg-type]
            elif name == "elapsed":
                self.elapsed = value  # type: ignore[assignment]

    def __getitem__(self, name: str) -> Track:
        """Return a metric, empty if it has no values."""
        return self.tracks.get(name, _NEVER)

    @property
    def share(self) -> float:
        """The finished share of the run."""
        return self.update / max(self.total, 1)

    def starting_with(self, prefix: str) -> dict[str, Track]:
        """Return the metrics of a group by their names without the prefix."""
        return {name.removeprefix(prefix): track for name, track in self.tracks.items() if name.startswith(prefix)}
