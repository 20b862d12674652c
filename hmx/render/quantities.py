"""Write numbers for readers and read numbers as people type them: every number format of the project."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from hmx.config.coerce import typed_number
from hmx.config.textfile import quoted
from hmx.errors import HmxError
from hmx.render.blocks import NumberFormat, Plot

UNKNOWN = "-"  # text of an unknown value
_SIZE = re.compile(r"([0-9][0-9_.]*)\s*([KMGT]?)(i?)B", re.IGNORECASE)
_EIGHTHS = " ▏▎▍▌▋▊▉"
_LARGEST_PLAIN = 1e9  # numbers from this one on have an exponent
_MOST_DECIMALS = 7  # beyond, numbers are written with an exponent
_SHORTEST_SECONDS = 0.1  # below are milliseconds
_LARGEST_SPEED = 1e30


def number(value: float | None, digits: int = 3) -> str:
    """Return a number with `digits` significant digits and commas: 0.123, 12,346, 1.5e-7."""
    if value is None or math.isnan(value):
        return UNKNOWN
    if 10**digits - 0.5 <= abs(value) < _LARGEST_PLAIN:
        return f"{value:,.0f}"
    return re.sub(r"e([-+])0*", lambda e: "e-" if e[1] == "-" else "e", f"{value + 0.0:.{digits}g}")


def signed(value: float | None) -> str:
    """Return a number with its sign and two decimals: +0.25."""
    return UNKNOWN if value is None or math.isnan(value) else f"{value:+.2f}"


def percent(share: float | None, decimals: int = 0) -> str:
    """Return a share of 1 in percent: 31%."""
    if share is None or not math.isfinite(share):
        return UNKNOWN
    return f"{round(share, decimals + 2) + 0.0:.{decimals}%}"


def count(value: float | int | str | None) -> str:
    """Return a value of any type exactly: whole numbers with commas, others with up to four decimals."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.4f}".rstrip("0").rstrip(".")
    return f"{value:,}" if isinstance(value, int) else quoted(str(value))


def short(value: float) -> str:
    """Return a count in at most five characters: 950, 12.5k, 4.00M."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            scaled_value = value / limit
            decimals = 2 if scaled_value < 10 else 1 if scaled_value < 100 else 0
            return f"{scaled_value:.{decimals}f}{unit}"
    return f"{value:.0f}"


def age(seconds: float) -> str:
    """Return the time since something, to the second; from 100 hours on in days."""
    return duration(max(round(seconds), 1)).rpartition("(")[2].removesuffix(")")


def interval(value: float | None, low: float | None = None, high: float | None = None, sign: bool = False) -> str:
    """Return an estimate with its interval, with as many decimals as the width justifies: 0.81 [0.79, 0.84].

    An interval without width only says that the values are equal: 0.81 (all equal).
    """
    if value is None:
        return UNKNOWN
    ends = [value] if low is None or high is None else [value, low, high]
    if low is not None and low == high:
        return f"{interval(value, sign=sign)} (all equal)"
    width = ends[-1] - ends[1] if len(ends) == 3 else 0.0
    if width > 0 and _decimals(width / 2) <= _MOST_DECIMALS:
        decimals, plus = _decimals(width / 2), "+" if sign else ""
        shown = [f"{v if round(v, decimals) else 0.0:{plus},.{decimals}f}" for v in ends]
    else:
        shown = [f"{'+' if sign and v > 0 else ''}{number(v, 4)}" for v in ends]
    return shown[0] if len(shown) == 1 else f"{shown[0]} [{shown[1]}, {shown[2]}]"


def plus_minus(value: float | None, spread: float | None) -> str:
    """Return a value and its standard deviation or error, both with two digits of the latter: 0.812 ± 0.013."""
    if value is None or not spread:
        return number(value, 4) + ("" if value is None or spread is None else " ± 0")
    decimals = _decimals(spread)
    if decimals > _MOST_DECIMALS:
        return f"{number(value)} ± {number(spread, 2)}"
    return f"{value if round(value, decimals) else 0.0:,.{decimals}f} ± {spread:,.{decimals}f}"


def _decimals(width: float) -> int:
    """Return the number of decimals that show two digits of a width."""
    return max(1 - math.floor(math.log10(width)), 0) if math.isfinite(width) else 0


def clock(seconds: float) -> str:
    """Return a duration as m:ss or h:mm:ss, for displays that change every second."""
    minutes, rest = divmod(max(int(seconds + 0.5), 0), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def duration(seconds: float | None) -> str:
    """Return a duration in a readable unit: 1.25 ms, 12.5 s, 3.0 min, 5.2 h, 240.0 h (10.0 days)."""
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    if 0 < seconds < _SHORTEST_SECONDS:
        return f"{number(1000 * seconds)} ms"
    if seconds < 60:
        return f"{number(seconds)} s"
    if seconds < 3600:
        return f"{seconds / 60:.1f} min"
    hours = seconds / 3600
    return f"{hours:,.1f} h" if hours < 100 else f"{hours:,.1f} h ({hours / 24:,.1f} days)"


def data_size(size: float, step: int = 1024) -> str:
    """Return bytes in the largest unit with a value of at least 1; `step` is 1024 (MiB) or 1000 (MB)."""
    units = ("B", "kB", "MB", "GB", "TB", "PB") if step == 1000 else ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
    value, power = float(size), 0
    while value >= step and power < len(units) - 1:
        value, power = value / step, power + 1
    return f"{value:.1f} {units[power]}" if power else f"{size:.0f} B"


def bar(share: float | None, width: int, ascii_only: bool = False) -> str:
    """Return a share of 1 as a bar of at most `width` characters; empty for a share that is not positive."""
    filled = min(max(share, 0.0), 1.0) * width if share is not None and math.isfinite(share) else 0.0
    if ascii_only:
        return "#" * round(filled)
    blocks, rest = divmod(round(filled * 8), 8)
    return "█" * blocks + (_EIGHTHS[rest] if rest else "")


FORMATS: Mapping[NumberFormat, Callable[[float], str]] = {
    "number": number,
    "percent": percent,
    "count": count,
    "duration": duration,
}
"""Formats that blocks refer to by name; ticks of counts use `short`."""


def place_name(plot: Plot, x: float) -> str:
    """Return the category at a place, or the place as a number."""
    if plot.categories:
        return plot.categories[int(x)] if 0 <= x < len(plot.categories) else ""
    return FORMATS[plot.x.format](x)


def speeds(texts: Iterable[str]) -> tuple[float, ...]:
    """Return steps per second, from texts that may each hold several values separated by commas."""
    return tuple(_speed(part) for text in texts for part in text.split(","))


def _speed(text: str) -> float:
    found = typed_number(text)
    if isinstance(found, str) or not 0 < found < _LARGEST_SPEED:
        raise HmxError(f"--sps {quoted(text) or repr(text)}: must be a number above 0", "--sps 20k or --sps 2e4,2e5")
    return float(found)


def memory_size(text: str) -> int:
    """Return the bytes of a text such as 80GB (of 1,000 MB) or 80GiB (of 1,024 MiB)."""
    parts = _SIZE.fullmatch(text.strip())
    try:
        value = float(parts[1]) if parts else 0.0
    except ValueError:
        value = 0.0
    if not parts or not 0 < value < math.inf:
        raise HmxError(
            f"--gpu-mem {quoted(text) or repr(text)}: must be a size with its unit", "--gpu-mem 80GB or 80GiB"
        )
    step = 1024 if parts[3] else 1000
    return round(value * float(step) ** " KMGT".index(parts[2].upper() or " "))


_BLOCKS = "▁▂▃▄▅▆▇█"
_ASCII = "_.-=+*#"


def sparkline(values: Sequence[float], width: int, ascii_only: bool = False, scale: Sequence[float] = ()) -> str:
    """At most `width` characters, the lowest value at the bottom and the highest at the top.

    With `scale`, its lowest and highest value are there instead, so that several curves can be compared.

    More values than characters are averaged in equal parts; values that are not finite are skipped.
    """
    values = [value for value in values if math.isfinite(value)]
    if not values or width < 1:
        return ""
    count = min(width, len(values))
    edges = [round(i * len(values) / count) for i in range(count + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]
    low, high = min((*scale, *means)), max((*scale, *means))
    marks = _ASCII if ascii_only else _BLOCKS
    if high == low:
        return marks[0] * count
    return "".join(marks[min(int((mean - low) / (high - low) * len(marks)), len(marks) - 1)] for mean in means)
