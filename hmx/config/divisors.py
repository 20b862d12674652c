"""Divisors, for suggestions that split evenly."""

from __future__ import annotations

import math

from hmx.config.primes import all_divisors, divisor_above, divisor_below


def neighbours(n: int, wanted: int) -> list[int]:
    """The divisors of `n` next to `wanted`: the nearest below and the nearest above, nearest first; or `[wanted]`."""
    if n % wanted == 0:
        return [wanted]
    found = [d for d in (divisor_below(n, wanted), divisor_above(n, wanted)) if d is not None]
    return sorted(found, key=lambda d: abs(d - wanted))


def nearest_ratio(n: int, wanted: float) -> int:
    """The divisor of `n` closest to `wanted` as a ratio; the smaller of two that are equally close."""
    return min(all_divisors(n), key=lambda d: (abs(math.log(d / wanted)), d))
