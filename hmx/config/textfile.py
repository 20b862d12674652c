"""Read text files that may be malformed, and quote their content safely."""

from __future__ import annotations

import errno
import os
from pathlib import Path

MAX_BYTES = 1 << 20
"""More than any configuration or scenario has; a device such as /dev/zero never ends."""

_MAX_SHOWN = 80


def read_text(path: Path, limit: int = MAX_BYTES) -> str:
    """Read a file or pipe of at most `limit` bytes in UTF-8, with or without a byte order mark.

    Raises:
        OSError: it does not exist, cannot be read, or is longer.
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
    """Quote text in a message: on one line, without control characters, and shortened if it is long."""
    shown = printable(text[: longest + 1], "")
    return shown if len(shown) <= longest else f"{shown[: longest - 3]}..."


def printable(text: str, kept: str = "\n\t") -> str:
    """Escape unprintable characters as in Python, except for `kept`, so that text cannot control a terminal.

    Colour codes, bells, right-to-left marks and lone surrogates are all escaped.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in kept else ascii(c)[1:-1] for c in text)
