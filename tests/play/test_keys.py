"""Single keys from a terminal."""

from __future__ import annotations

import os
import pty
import select
import sys
import termios
from collections.abc import Iterator

import pytest

from hmx.play.keys import Echo, Keyboard


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A terminal as standard input; what is written to this descriptor is typed."""
    typed, screen = pty.openpty()
    with os.fdopen(screen, "r") as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        yield typed
    os.close(typed)


@pytest.mark.parametrize(
    ("typed", "keys"),
    [
        (b"a", ["a"]),
        (b"\x1b[A\x1b[B\x1b[C\x1b[D", ["up", "down", "right", "left"]),
        (b"\x1bOA", ["up"]),
        (b"\n", ["enter"]),
        (b" q", [" ", "q"]),
        (b"\x1b", ["escape"]),
        (b"\x1b[Zx", ["escape", "x"]),
    ],
)
def test_keys_are_read_one_by_one(terminal, typed, keys):
    with Keyboard() as keyboard:
        os.write(terminal, typed)
        assert [keyboard.read(1.0) for _ in keys] == keys
        assert keyboard.read(0.0) is None


def test_keys_typed_into_a_live_panel_are_neither_shown_nor_kept(terminal):
    def echoes() -> bool:
        return bool(termios.tcgetattr(terminal)[3] & termios.ECHO)

    def shown() -> bytes:
        return os.read(terminal, 100) if select.select([terminal], [], [], 0.1)[0] else b""

    os.write(terminal, b"a\n")
    assert shown().startswith(b"a")  # the terminal of the test echoes
    echo = Echo()
    echo.off()
    os.write(terminal, b"b\n")
    assert not echoes() and shown() == b""
    echo.restore()
    assert echoes() and not select.select([sys.stdin], [], [], 0.1)[0]


@pytest.mark.parametrize("typed", [b"\x03", b"\x04"])
def test_ctrl_c_and_ctrl_d_interrupt(terminal, typed):
    with Keyboard() as keyboard:
        attributes = termios.tcgetattr(terminal)
        attributes[3] &= ~termios.ISIG  # so that Ctrl-C arrives as a character
        termios.tcsetattr(terminal, termios.TCSANOW, attributes)
        os.write(terminal, typed)
        with pytest.raises(KeyboardInterrupt):
            keyboard.read(1.0)


def test_terminal_is_restored_even_after_an_error(terminal):
    before = termios.tcgetattr(terminal)
    with pytest.raises(ZeroDivisionError), Keyboard():
        assert termios.tcgetattr(terminal) != before
        raise ZeroDivisionError
    assert termios.tcgetattr(terminal) == before
