"""Single keys from a terminal, without waiting for Enter."""

from __future__ import annotations

import os
import select
import sys
from types import TracebackType
from typing import Any

from hmx.errors import HmxError

_ARROWS = {"A": "up", "B": "down", "C": "right", "D": "left"}
_INTERRUPT, _END_OF_INPUT = "\x03", "\x04"
_ESCAPE_WAIT = 0.05


class Keyboard:
    """Reads keys while the `with` block runs; the terminal is put back as it was, whatever happens.

    Raises:
        HmxError: stdin is not a terminal.
    """

    def __init__(self) -> None:
        if not sys.stdin.isatty():
            raise HmxError(
                "this command reads single keys, and standard input is not a terminal",
                "run it in a terminal, without a pipe or a file as its input",
            )
        self._fd = sys.stdin.fileno()
        self._saved: list[Any] | None = None

    def __enter__(self) -> Keyboard:
        import termios
        import tty

        self._saved = termios.tcgetattr(self._fd)
        # cbreak rather than raw: output keeps its line ends, and Ctrl-C stays a signal.
        tty.setcbreak(self._fd)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        import termios

        if self._saved is not None:
            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._saved)
            self._saved = None

    def read(self, timeout: float | None = None) -> str | None:
        """The next key: a character, `up`, `down`, `left`, `right`, `enter` or `escape`; None after the timeout.

        Raises:
            KeyboardInterrupt: Ctrl-C or Ctrl-D, or the terminal is gone.
        """
        if not select.select([self._fd], [], [], timeout)[0]:
            return None
        char = os.read(self._fd, 1).decode("utf-8", "replace")
        if char in ("", _INTERRUPT, _END_OF_INPUT):
            raise KeyboardInterrupt
        if char in "\r\n":
            return "enter"
        return self._sequence() if char == "\x1b" else char

    def _sequence(self) -> str:
        """An arrow key sends an escape, `[` or `O`, and a letter."""
        text = ""
        while len(text) < 2 and select.select([self._fd], [], [], _ESCAPE_WAIT)[0]:
            text += os.read(self._fd, 1).decode("utf-8", "replace")
        return _ARROWS.get(text[1:], "escape") if text[:1] in ("[", "O") else "escape"
