"""A curve in one line of text."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

_BLOCKS = "▁▂▃▄▅▆▇█"
_ASCII = "_.-=+*#"


def sparkline(values: Sequence[float], width: int, ascii_only: bool = False) -> str:
    """At most `width` characters, the lowest value at the bottom and the highest at the top.

    More values than characters are averaged in equal parts; values that are not finite are left out.
    """
    values = [value for value in values if math.isfinite(value)]
    if not values or width < 1:
        return ""
    count = min(width, len(values))
    edges = [round(i * len(values) / count) for i in range(count + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]
    low, high = min(means), max(means)
    marks = _ASCII if ascii_only else _BLOCKS
    if high == low:
        return marks[0] * count
    return "".join(marks[min(int((mean - low) / (high - low) * len(marks)), len(marks) - 1)] for mean in means)
