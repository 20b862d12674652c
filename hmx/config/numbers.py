"""Read numbers as people type them."""

from __future__ import annotations

import math
import re

_SUFFIXED = re.compile(r"([0-9][0-9_]*(?:\.[0-9]*)?|\.[0-9]+)([kmg])", re.IGNORECASE)
_POWERS = {"k": 3, "m": 6, "g": 9}
_LONGEST = 4000  # digits that Python converts to a number without an error


def typed_number(text: str) -> int | float | str:
    """Return the number that a text stands for, or the text itself if it is not a finite number.

    `_` separates digits, and the suffixes k, M and G stand for thousands, millions and billions: 20k is 20000.
    The result is an `int` where the text is a whole number without an exponent.
    """
    digits = text.strip()
    if len(digits) > _LONGEST and digits.isdecimal():
        return int(10**_LONGEST)
    power = 0
    if parts := _SUFFIXED.fullmatch(digits):
        digits, power = parts[1], _POWERS[parts[2].lower()]
    try:
        return int(digits) * int(10**power)
    except ValueError:
        pass
    try:
        value = float(f"{digits}e{power}" if power else digits)
    except ValueError:
        return text
    if not math.isfinite(value):
        return text
    return int(value) if power and value.is_integer() else value
