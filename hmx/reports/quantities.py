"""Numbers as people type and read them: counts, speeds, sizes of memory, durations."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

from hmx.config.textfile import quoted
from hmx.errors import HmxError

_SIZE = re.compile(r"([0-9][0-9_.]*)\s*([KMGT]?)(i?)B", re.IGNORECASE)
_LONGEST = 4000  # digits that Python turns into a number without complaint


def whole(text: str) -> Any:
    """The whole number that a text is, `_` allowed; else another number or the text itself, to be refused later."""
    digits = text.strip()
    if len(digits) > _LONGEST and digits.isdecimal():
        return 10**_LONGEST
    for convert in (int, float):
        try:
            number = convert(digits)
        except ValueError:
            continue
        return number if isinstance(number, int) or math.isfinite(number) else text
    return text


def speeds(texts: Iterable[str]) -> tuple[float, ...]:
    """Steps per second, from texts that may each hold several after commas.

    Raises:
        HmxError: something that is no number above 0.
    """
    return tuple(_speed(part) for text in texts for part in text.split(","))


def _speed(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 < found < math.inf:
        raise HmxError(f"--sps {quoted(text) or repr(text)}: must be a number above 0", "--sps 20_000 or --sps 2e4,2e5")
    return found


def memory_size(text: str) -> int:
    """Bytes from a text such as 80GB (of 1,000 MB) or 80GiB (of 1,024 MiB).

    Raises:
        HmxError: no number, or no unit.
    """
    parts = _SIZE.fullmatch(text.strip())
    try:
        number = float(parts[1]) if parts else 0.0
    except ValueError:
        number = 0.0
    if not parts or not 0 < number < math.inf:
        raise HmxError(
            f"--gpu-mem {quoted(text) or repr(text)}: must be a size with its unit", "--gpu-mem 80GB or 80GiB"
        )
    step = 1024 if parts[3] else 1000
    return round(number * float(step) ** " KMGT".index(parts[2].upper() or " "))


def count(value: Any) -> str:
    """A value of a table: whole numbers with commas, others with up to four decimals."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        shown = f"{value:,.4f}"
        return shown.rstrip("0").rstrip(".")
    return f"{value:,}" if isinstance(value, int) else quoted(str(value))


def scaled(bytes_: int, step: int) -> str:
    """Bytes in the largest unit that leaves at least one of it: steps of 1,000 or of 1,024."""
    units = ("B", "kB", "MB", "GB", "TB", "PB") if step == 1000 else ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
    size, power = float(bytes_), 0
    while size >= step and power < len(units) - 1:
        size, power = size / step, power + 1
    return f"{size:.1f} {units[power]}" if power else f"{bytes_} B"


def duration(seconds: float) -> str:
    """A duration in hours, or in minutes or days where that reads better."""
    if seconds < 3600:
        return f"{seconds / 60:.1f} min"
    hours = seconds / 3600
    return f"{hours:,.1f} h" if hours < 100 else f"{hours:,.1f} h ({hours / 24:,.1f} days)"
