"""Divisors of a size, to suggest sizes that split evenly."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from functools import lru_cache

_LARGEST = 1_000_000
"""Largest number that is tried as a prime factor, so that every search ends within a tenth of a second.

The remainder then counts as prime, which is certain below 10^12. Above, a product of two larger primes is not split.
"""


@lru_cache(maxsize=64)
def all_divisors(n: int) -> tuple[int, ...]:
    """Return the divisors of `n` >= 1 in ascending order, except those that need two prime factors above 10^6."""
    found, rest, d = [1], n, 2
    while rest > 1:
        if d * d > rest or d > _LARGEST:
            d = rest
        powers = [1]
        while rest % d == 0:
            rest //= d
            powers.append(powers[-1] * d)
        found = [low * power for power in powers for low in found]
        d += 1 + d % 2
    return tuple(sorted(found))


def divisor_below(n: int, wanted: int) -> int | None:
    """Return the largest divisor of `n` that is smaller than `wanted`."""
    found = all_divisors(n)
    at = bisect_left(found, wanted)
    return found[at - 1] if at else None


def divisor_above(n: int, wanted: int) -> int | None:
    """Return the smallest divisor of `n` that is larger than `wanted`."""
    found = all_divisors(n)
    at = bisect_right(found, wanted)
    return found[at] if at < len(found) else None


def neighbours(n: int, wanted: int) -> list[int]:
    """Return the divisors of `n` next to `wanted`, the nearest below and above, nearest first; or `[wanted]`."""
    if n % wanted == 0:
        return [wanted]
    found = [d for d in (divisor_below(n, wanted), divisor_above(n, wanted)) if d is not None]
    return sorted(found, key=lambda d: abs(d - wanted))
