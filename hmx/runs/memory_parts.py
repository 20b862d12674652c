"""The memory of a run in parts; readable without JAX."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

UNCERTAINTY = 2  # factor either way within which an estimated part lies


class MemoryPart(NamedTuple):
    """A part of the memory, over all seeds."""

    key: str
    label: str
    bytes: int
    formula: str  # how the size follows
    exact: bool = True
    counted: bool = True  # in the total; other parts are there for comparison


@dataclass(frozen=True)
class Memory:
    """All parts over all seeds, the total with the ends of its interval, and the parameters of one seed."""

    parts: tuple[MemoryPart, ...]
    parameters: int
    total_bytes: int
    total_bytes_low: int
    total_bytes_high: int


def add_up(parts: list[MemoryPart], parameters: int) -> Memory:
    """Return the memory that consists of these parts."""
    exact = sum(part.bytes for part in parts if part.counted and part.exact)
    rough = sum(part.bytes for part in parts if part.counted and not part.exact)
    return Memory(tuple(parts), parameters, exact + rough, exact + rough // UNCERTAINTY, exact + rough * UNCERTAINTY)


def largest_fit(needed: Callable[[int], int], value: int, limit: int, below: Callable[[int], int]) -> int:
    """Return the largest value up to `value` that needs at most `limit` bytes; 0 if there is none.

    Args:
        needed: value -> bytes, which grow linearly or nearly so. If they do not grow, the result is 0.
        value: the value to start from.
        limit: bytes that are available.
        below: returns the largest value that may be chosen and is not above its argument; 0 if there is none.
    """
    size = before = needed(value)
    while size > limit:
        value = below(min(value * limit // size, value - 1))
        if value <= 0:
            return 0
        size = needed(value)
        if size >= before:
            return 0
    return value
