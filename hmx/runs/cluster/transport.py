"""Send frames of bytes and heartbeats between the processes of a run.

A frame is one byte for its kind, eight bytes for its length, and its content. Received data is never executed or
unpickled, and never takes more memory than the receiver allows.
"""

from __future__ import annotations

import contextlib
import json
import queue
import socket
import struct
import threading
from collections.abc import Callable
from typing import NamedTuple

from hmx.config.textfile import printable
from hmx.errors import ExitCode, one_line
from hmx.simulators.channel import read_exactly

BEAT_EVERY = 2.0  # seconds between two heartbeats
SILENCE = 30.0  # seconds without data or heartbeat after which a peer counts as gone
SMALL = 1 << 22  # maximum bytes of a frame that a worker may send; a configuration has a few thousand

_HEADER = struct.Struct("!cQ")
_BEAT, _DATA, _END = b".", b"d", b"e"
_HELLO = struct.Struct("!8sI")
_MAGIC = b"hmx-run1"
_PIECE = 1 << 20  # bytes per system call: the socket's timeout applies to each


class ExitMessage(NamedTuple):
    """The last message of a peer; `message` is empty after success."""

    message: str = ""
    hint: str = ""
    code: int = ExitCode.OK


class Connection:
    """A connection to one peer, read by a thread until it ends.

    Args:
        peer: a TCP socket, or one end of a pair of sockets.
        limit: bytes of the largest frame that is accepted.
        silence: seconds without any byte after which the peer counts as gone.
    """

    def __init__(self, peer: socket.socket, limit: int = SMALL, silence: float = SILENCE) -> None:
        self.exit_message: ExitMessage | None = None
        self.lost = ""  # why the connection ended without an exit message
        self.ended = threading.Event()
        self._socket = peer
        self._limit = limit
        self._silence = silence
        self._sending = threading.Lock()
        self._frames: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def start(self, on_end: Callable[[Connection], None] = lambda ended: None, beat_every: float = BEAT_EVERY) -> None:
        """Start reading and sending heartbeats; the reading thread calls `on_end` when the connection ends."""
        self._socket.settimeout(self._silence)
        with contextlib.suppress(OSError):  # not an option of socket pairs
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=self._read, args=(on_end,), name="hmx-read", daemon=True).start()
        threading.Thread(target=self._live, args=(beat_every,), name="hmx-beat", daemon=True).start()

    def send(self, data: bytes | memoryview) -> None:
        """Send a frame; the reading thread reports a connection that has ended."""
        with contextlib.suppress(OSError), self._sending:
            self._put(_DATA, data)

    def send_exit(self, exit_message: ExitMessage) -> None:
        """Send the last frame; the peer may still send."""
        with contextlib.suppress(OSError), self._sending:
            self._put(_END, json.dumps(exit_message).encode())
            self._socket.shutdown(socket.SHUT_WR)

    def receive(self, seconds: float) -> bytes | None:
        """Return the next frame, or None if none arrives within `seconds`."""
        try:
            return self._frames.get(timeout=seconds)
        except queue.Empty:
            return None

    def close(self) -> None:
        """Close the connection."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _put(self, kind: bytes, data: bytes | memoryview) -> None:
        view = memoryview(data)
        self._socket.sendall(_HEADER.pack(kind, len(view)))
        for start in range(0, len(view), _PIECE):
            self._socket.sendall(view[start : start + _PIECE])

    def _read(self, on_end: Callable[[Connection], None]) -> None:
        try:
            while self.exit_message is None:
                self._read_frame()
        except TimeoutError:
            self.lost = f"no heartbeat for {self._silence:.0f} s"
        except (OSError, ValueError, TypeError, struct.error) as problem:
            self.lost = f"its connection ended ({one_line(problem, 100)})"
        on_end(self)
        self.ended.set()

    def _read_frame(self) -> None:
        kind, size = _HEADER.unpack(read_exactly(self._socket, _HEADER.size))
        if size > (SMALL if kind != _DATA else self._limit):
            raise ValueError("it sent a frame that is too large")
        data = read_exactly(self._socket, size)
        if kind == _DATA:
            self._frames.put(data)
        elif kind == _END:
            self.exit_message = _exit_message(json.loads(data))

    def _live(self, every: float) -> None:
        while not self.ended.wait(every):
            # A connection that is busy sending needs no heartbeat.
            if self._sending.acquire(blocking=False):
                try:
                    self._put(_BEAT, b"")
                except OSError:
                    return
                finally:
                    self._sending.release()


def _exit_message(data: object) -> ExitMessage:
    match data:
        case [str(message), str(hint), int(code)] if code in set(ExitCode):
            return ExitMessage(printable(message), printable(hint), code)
    raise ValueError("it sent an exit message that cannot be read")


def send_hello(connection: socket.socket, hello: dict[str, object]) -> None:
    """Send the first message of a new connection."""
    data = json.dumps(hello).encode()
    connection.sendall(_HELLO.pack(_MAGIC, len(data)) + data)


def read_hello(connection: socket.socket, seconds: float = 5.0) -> dict[str, object] | None:
    """Return the first message of a new connection; None if the peer is not an hmx process."""
    connection.settimeout(seconds)
    try:
        magic, size = _HELLO.unpack(read_exactly(connection, _HELLO.size))
        hello = json.loads(read_exactly(connection, size)) if magic == _MAGIC and size <= SMALL else None
    except (OSError, ValueError, RecursionError):
        return None
    return hello if isinstance(hello, dict) else None
