"""Prime factors and divisors of whole numbers of any size that a configuration may hold, in milliseconds."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from functools import lru_cache

_SMALL = tuple(p for p in range(2, 1000) if all(p % d for d in range(2, math.isqrt(p) + 1)))

_WITNESSES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)
"""Enough for every number below 3.3e24 (Sorenson and Webster, 2015)."""


def is_prime(n: int) -> bool:
    """Whether `n` is prime; Miller-Rabin, certain below 3.3e24."""
    if n < 2:
        return False
    if any(n % p == 0 for p in _WITNESSES):
        return n in _WITNESSES
    twos = ((n - 1) & (1 - n)).bit_length() - 1
    odd = (n - 1) >> twos
    return all(_passes(n, base, odd, twos) for base in _WITNESSES)


def _passes(n: int, base: int, odd: int, twos: int) -> bool:
    x = pow(base, odd, n)
    if x in (1, n - 1):
        return True
    for _ in range(twos - 1):
        x = x * x % n
        if x == n - 1:
            return True
    return False


@lru_cache(maxsize=256)
def prime_factors(n: int) -> tuple[tuple[int, int], ...]:
    """Each prime of `n` >= 1 with its power, ascending."""
    powers: Counter[int] = Counter()
    for p in _SMALL:
        while n % p == 0:
            powers[p] += 1
            n //= p
    rest = [n] if n > 1 else []
    while rest:
        m = rest.pop()
        if m < _SMALL[-1] ** 2 or is_prime(m):
            powers[m] += 1
        else:
            d = _split(m)
            rest += [d, m // d]
    return tuple(sorted(powers.items()))


def _split(n: int) -> int:
    """A proper divisor of the composite `n`: Pollard's rho, one gcd per 128 steps (Brent, 1980)."""
    for c in range(1, n):
        x = y = 2
        found, product, seen = 1, 1, (x, y)
        while found == 1:
            seen = (x, y)
            for _ in range(128):
                x = (x * x + c) % n
                y = (y * y + c) % n
                y = (y * y + c) % n
                product = product * (x - y) % n
            found = math.gcd(product, n)
        if found == n:
            found, (x, y) = 1, seen
            while found == 1:
                x = (x * x + c) % n
                y = (y * y + c) % n
                y = (y * y + c) % n
                found = math.gcd(x - y, n)
        if found < n:
            return found
    raise AssertionError("only a prime has no proper divisor")


@lru_cache(maxsize=64)
def all_divisors(n: int) -> tuple[int, ...]:
    """Every divisor of `n` >= 1, ascending."""
    found = [1]
    for p, power in prime_factors(n):
        found = [d * p**k for k in range(power + 1) for d in found]
    return tuple(sorted(found))


def divisor_below(n: int, wanted: int) -> int | None:
    """The largest divisor of `n` that is smaller than `wanted`."""
    found = all_divisors(n)
    at = bisect_left(found, wanted)
    return found[at - 1] if at else None


def divisor_above(n: int, wanted: int) -> int | None:
    """The smallest divisor of `n` that is larger than `wanted`."""
    found = all_divisors(n)
    at = bisect_right(found, wanted)
    return found[at] if at < len(found) else None
