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
            self.best = self.mean

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
        """Whether the values suffice for an average."""
        return self.count >= WINDOW


_FEWEST = 8  # blocks of a long history; there are up to twice as many
_NORMAL = 0.6745  # median of the absolute value of a standard normal variable


@dataclass
class ReturnHistory:
    """The mean episode return so far; adding a value takes constant time and memory.

    Means of long blocks show changes despite noise that is correlated over many updates. Windows without their highest
    and lowest value show the location despite rare outliers.
    """

    count: int = 0
    low: float = math.inf  # of the windows, without their extremes
    high: float = -math.inf
    first: float = math.nan  # mean of the first window, without its extremes
    best: float = -math.inf
    blocks: list[float] = field(default_factory=list)  # means of successive blocks of `size` values
    size: int = WINDOW
    open: list[float] = field(default_factory=list)  # values of the next block
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))

    def add(self, value: float) -> None:
        """Take the next value."""
        self.count += 1
        self.recent.append(value)
        self.open.append(value)
        if self.count >= WINDOW:
            inner = sorted(self.recent)[1:-1]
            mean = math.fsum(inner) / len(inner)
            self.first = mean if self.count == WINDOW else self.first
            self.best, self.low, self.high = max(self.best, mean), min(self.low, inner[0]), max(self.high, inner[-1])
        if len(self.open) == self.size:
            self.blocks.append(math.fsum(self.open) / self.size)
            self.open = []
            if len(self.blocks) == 2 * _FEWEST:
                self.blocks = [(a + b) / 2 for a, b in zip(self.blocks[::2], self.blocks[1::2], strict=True)]
                self.size *= 2

    @property
    def noise(self) -> float:
        """The standard deviation of the difference of two blocks; infinite for fewer than 5 blocks.

        It is estimated from second differences, which a trend does not change, by their median, which a few sudden
        changes do not change.
        """
        triples = zip(self.blocks, self.blocks[1:], self.blocks[2:], strict=False)
        second = sorted(abs(a - 2 * b + c) for a, b, c in triples)
        return second[len(second) // 2] / _NORMAL / math.sqrt(3) if len(second) > 2 else math.inf


_NEVER = Track()
_LARGEST = 1e100  # larger numbers count as not finite
_GROUPS = ("train", "reward", "actions")  # groups of the metrics that rules read


@dataclass
class History:
    """The records of one agent so far."""

    config: Config | None  # None for a log of another program
    total: int  # updates of the whole run; of a log, its points
    update: int = 0
    steps: int = 0  # environment steps
    continued: bool = False  # whether it begins with an agent that may be as good as the task allows
    current: bool = True  # whether no later fork or resumption changed the rewards or the environment
    elapsed: float = 0.0  # seconds of training
    returns: ReturnHistory = field(default_factory=ReturnHistory)
    tracks: dict[str, Track] = field(default_factory=dict)
    latest: dict[str, float] = field(default_factory=dict)  # the values of the latest update
    groups: dict[str, dict[str, Track]] = field(default_factory=lambda: {name: {} for name in _GROUPS})

    def add(self, update: int, steps: int, record: Mapping[str, object]) -> None:
        """Take the record of an update; values that are not finite are skipped."""
        self.update, self.steps, self.latest = update, steps, {}
        for name, value in record.items():
            if isinstance(value, float | int) and -_LARGEST < value < _LARGEST:
                track = self.tracks.get(name) or self._new(name)
                if name == "train/mean_episode_return":
                    self.returns.add(value)
                if track is not None:
                    track.add(value)
                    self.latest[name] = value
                elif name == "elapsed":
                    self.elapsed = value

    def _new(self, name: str) -> Track | None:
        group, slash, rest = name.partition("/")
        if not slash or group not in self.groups:
            return None
        self.tracks[name] = self.groups[group][rest] = Track()
        return self.tracks[name]

    @property
    def cfg(self) -> Config:
        """The configuration, for rules that are checked only with it."""
        assert self.config is not None
        return self.config

    def has(self, name: str) -> bool:
        """Whether there are values of a metric, or of a group of metrics such as `reward/`."""
        return bool(self.groups[name[:-1]]) if name.endswith("/") else name in self.tracks

    def __getitem__(self, name: str) -> Track:
        """Return a metric, empty if it has no values."""
        return self.tracks.get(name, _NEVER)

    @property
    def share(self) -> float:
        """The finished share of the run."""
        return self.update / max(self.total, 1)
