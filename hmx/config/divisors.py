"""Divisors, for suggestions that split evenly."""

from __future__ import annotations

import math

# Beyond this, looking at every number up to the square root would take seconds.
_EXACT_UP_TO = 10**12
_NEARBY = 100_000


def divisors(n: int) -> list[int]:
    """All divisors of `n` >= 1, ascending; for n beyond 10^12 only those up to 100,000 and their partners."""
    top = math.isqrt(n) if n <= _EXACT_UP_TO else _NEARBY
    low = [d for d in range(1, top + 1) if n % d == 0]
    return sorted({*low, *(n // d for d in low)})


def neighbours(n: int, wanted: int) -> list[int]:
    """The divisors of `n` next to `wanted`: the nearest below and the nearest above, nearest first; or `[wanted]`."""
    all_ = divisors(n)
    if wanted in all_:
        return [wanted]
    below = [d for d in all_ if d < wanted][-1:]
    above = [d for d in all_ if d > wanted][:1]
    return sorted([*below, *above], key=lambda d: abs(d - wanted))


def nearest_ratio(n: int, wanted: float) -> int:
    """The divisor of `n` closest to `wanted` as a ratio; the smaller of two that are equally close."""
    return min(divisors(n), key=lambda d: (abs(math.log(d / wanted)), d))
