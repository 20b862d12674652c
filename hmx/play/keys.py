"""Single keys from a terminal, without waiting for Enter."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import sys
import time
from typing import Any

from hmx.errors import HmxError

_ARROWS = {"A": "up", "B": "down", "C": "right", "D": "left"}
_INTERRUPT, _END_OF_INPUT = "\x03", "\x04"
_ESCAPE_WAIT = 0.05
_RESIZE_CHECK = 0.2  # seconds between two looks at the size of the terminal

RESIZED = "resized"
"""The result of `Keyboard.read` when the size of the terminal has changed."""


class Echo:
    """Switch the echo of typed keys off and on, so that they do not write into a live display."""

    def __init__(self) -> None:
        self._saved: list[Any] | None = None

    def off(self) -> None:
        """Stop the echo if stdin is a terminal; Ctrl-C stays a signal."""
        import atexit
        import termios

        try:
            self._fd = sys.stdin.fileno()
            self._saved = termios.tcgetattr(self._fd)
        except (OSError, ValueError, AttributeError, termios.error):
            return  # stdin is closed or not a terminal
        quiet = [*self._saved]
        quiet[3] &= ~termios.ECHO
        termios.tcsetattr(self._fd, termios.TCSANOW, quiet)
        atexit.register(self.restore)

    def restore(self) -> None:
        """Drop the keys typed ahead and echo again."""
        import termios

        if self._saved is not None:
            with contextlib.suppress(OSError, termios.error):
                termios.tcsetattr(self._fd, termios.TCSAFLUSH, self._saved)
            self._saved = None


class Keyboard:
    """Read keys while the `with` block runs; the terminal is restored at the end."""

    def __init__(self) -> None:
        if not sys.stdin.isatty():
            hint = "run the command in a terminal, without a pipe or file as input"
            raise HmxError("cannot read keys: standard input is not a terminal", hint)
        self._fd = sys.stdin.fileno()
        self._size = shutil.get_terminal_size()

    def __enter__(self) -> Keyboard:
        import termios
        import tty

        self._saved = termios.tcgetattr(self._fd)
        # cbreak instead of raw: output keeps its line ends, and Ctrl-C stays a signal.
        tty.setcbreak(self._fd)
        return self

    def __exit__(self, *_: object) -> None:
        import termios

        termios.tcsetattr(self._fd, termios.TCSADRAIN, self._saved)

    def read(self, timeout: float | None = None) -> str | None:
        """Return the next key: a character, `up`, `down`, `left`, `right`, `enter` or `escape`; None after the timeout.

        Returns `RESIZED` when the size of the terminal has changed.

        Raises:
            KeyboardInterrupt: Ctrl-C or Ctrl-D, or the terminal is gone.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            left = _RESIZE_CHECK if end is None else max(min(end - time.monotonic(), _RESIZE_CHECK), 0.0)
            if select.select([self._fd], [], [], left)[0]:
                break
            if (size := shutil.get_terminal_size()) != self._size:
                self._size = size
                return RESIZED
            if end is not None and time.monotonic() >= end:
                return None
        char = os.read(self._fd, 1).decode("utf-8", "replace")
        if char in ("", _INTERRUPT, _END_OF_INPUT):
            raise KeyboardInterrupt
        if char in "\r\n":
            return "enter"
        return self._sequence() if char == "\x1b" else char

    def _sequence(self) -> str:
        """Read the rest of an arrow key: escape, `[` or `O`, and a letter."""
        text = ""
        while len(text) < 2 and select.select([self._fd], [], [], _ESCAPE_WAIT)[0]:
            text += os.read(self._fd, 1).decode("utf-8", "replace")
        return _ARROWS.get(text[1:], "escape") if text[:1] in ("[", "O") else "escape"
