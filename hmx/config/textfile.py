"""Reading a text file that somebody else may have written, and quoting what is in it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

MAX_BYTES = 1 << 20
"""More than any configuration or scenario can have; a device such as /dev/zero never ends."""

_MAX_SHOWN = 80


def read_text(path: Path, limit: int = MAX_BYTES) -> str:
    """The text of a file of at most `limit` bytes in UTF-8, with or without a byte order mark.

    A pipe will do too: a shell gives one for `<(command)`.

    Raises:
        OSError: it is not there, cannot be read, or is longer.
        UnicodeDecodeError: it is not UTF-8.
    """
    data = b""
    with path.open("rb") as file:
        while len(data) <= limit and (block := file.read(limit + 1 - len(data))):
            data += block
    if len(data) > limit:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG) + f": more than {limit:,} bytes", str(path))
    return data.decode("utf-8-sig")


def quoted(text: str, longest: int = _MAX_SHOWN) -> str:
    """Text from a file as part of a message: on one line, without control characters, and cut if it is long."""
    shown = printable(text[: longest + 1], "")
    return shown if len(shown) <= longest else f"{shown[: longest - 3]}..."


def printable(text: str, kept: str = "\n\t") -> str:
    """Text that does nothing to a terminal: what is not printable is written as in Python, but for `kept`.

    Colour codes, bells, text that runs from right to left and halves of surrogate pairs are all escaped.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in kept else ascii(c)[1:-1] for c in text)
