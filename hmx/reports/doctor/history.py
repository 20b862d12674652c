"""The metrics of one agent as rules see them: running extremes, the first values and the latest ones."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from hmx.config.schema import Config

WINDOW = 8  # values that rules average over


@dataclass
class Track:
    """One metric so far; adding a value takes constant time and memory."""

    count: int = 0
    total: float = 0.0
    low: float = math.inf
    high: float = -math.inf
    first: float = math.nan  # mean of the first WINDOW values
    best: float = -math.inf  # highest mean of WINDOW values in a row
    best_error: float = math.nan  # its standard error
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))

    def add(self, value: float) -> None:
        """Take the next value."""
        self.count += 1
        self.total += value
        self.recent.append(value)
        if value < self.low:
            self.low = value
        if value > self.high:
            self.high = value
        if self.count <= WINDOW:
            self.first = self.mean
        if self.count >= WINDOW and self.mean > self.best:
            self.best, self.best_error = self.mean, self.error

    @property
    def mean(self) -> float:
        """The mean of the latest values; NaN without any."""
        return math.fsum(self.recent) / len(self.recent) if self.recent else math.nan

    @property
    def error(self) -> float:
        """The standard error of the mean of the latest values; NaN without two."""
        mean, count = self.mean, len(self.recent)
        squares = math.fsum((value - mean) ** 2 for value in self.recent)
        return math.sqrt(squares / (count - 1) / count) if count > 1 else math.nan

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
        """Whether the values suffice for an average."""
        return self.count >= WINDOW


_NEVER = Track()
_LARGEST = 1e100  # larger numbers count as not finite
_GROUPS = ("train", "reward", "actions")  # groups of the metrics that rules read


@dataclass
class History:
    """The records of one agent so far."""

    cfg: Config
    total: int  # updates of the whole run
    update: int = 0
    steps: int = 0  # environment steps
    elapsed: float = 0.0  # seconds of training
    tracks: dict[str, Track] = field(default_factory=dict)
    groups: dict[str, dict[str, Track]] = field(default_factory=lambda: {name: {} for name in _GROUPS})

    def add(self, update: int, steps: int, record: Mapping[str, object]) -> None:
        """Take the record of an update; values that are not finite are skipped."""
        self.update, self.steps = update, steps
        for name, value in record.items():
            if isinstance(value, float | int) and -_LARGEST < value < _LARGEST:
                track = self.tracks.get(name) or self._new(name)
                if track is not None:
                    track.add(value)
                elif name == "elapsed":
                    self.elapsed = value

    def _new(self, name: str) -> Track | None:
        group, slash, rest = name.partition("/")
        if not slash or group not in self.groups:
            return None
        self.tracks[name] = self.groups[group][rest] = Track()
        return self.tracks[name]

    def __getitem__(self, name: str) -> Track:
        """Return a metric, empty if it has no values."""
        return self.tracks.get(name, _NEVER)

    @property
    def share(self) -> float:
        """The finished share of the run."""
        return self.update / max(self.total, 1)
