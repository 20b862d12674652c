"""A value with its confidence interval, without NumPy, for commands that start quickly."""

from __future__ import annotations

from typing import NamedTuple


class Estimate(NamedTuple):
    """A value and its confidence interval; no interval from a single run."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def excludes_zero(self) -> bool:
        """Whether 0 lies outside the interval."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)

    def mirrored(self, total: float = 0.0) -> Estimate:
        """Return `total` less this estimate: a difference or a probability from the other side's point of view."""
        low, high = (None if end is None else total - end for end in (self.high, self.low))
        return Estimate(total - self.value, low, high)
