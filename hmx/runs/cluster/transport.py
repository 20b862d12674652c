"""Connections between the processes of one run: frames of bytes, and a sign of life now and then.

A frame is one byte that says what it is, eight of length, and its content. Nothing that comes in is run, unpickled
or allocated beyond what the receiver allows.
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
from hmx.errors import ExitCode

BEAT_EVERY = 2.0  # seconds between two signs of life
SILENCE = 30.0  # seconds without one after which a peer counts as gone
SMALL = 1 << 22  # bytes of a frame that anybody may send; a configuration has a few thousand

_HEADER = struct.Struct("!cQ")
_BEAT, _DATA, _END = b".", b"d", b"e"
_HELLO = struct.Struct("!8sI")
_MAGIC = b"hmx-run1"
_PIECE = 1 << 20  # bytes handed to the system at a time: a time limit holds for each


class Farewell(NamedTuple):
    """What a peer says before it leaves; no message where all went well."""

    message: str = ""
    hint: str = ""
    code: int = ExitCode.OK

    def encode(self) -> bytes:
        """As bytes."""
        return json.dumps(self).encode()


class Line:
    """A connection to one peer, which a thread reads until it ends.

    Args:
        connection: of TCP, or a pair of sockets.
        limit: bytes of the largest frame that is taken.
        silence: seconds without any byte after which the peer counts as gone.
    """

    def __init__(self, connection: socket.socket, limit: int = SMALL, silence: float = SILENCE) -> None:
        self.farewell: Farewell | None = None
        self.lost = ""  # why the connection ended, if the peer did not say
        self.ended = threading.Event()
        self._connection = connection
        self._limit = limit
        self._silence = silence
        self._sending = threading.Lock()
        self._frames: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def start(self, on_end: Callable[[Line], None] = lambda line: None, beat_every: float = BEAT_EVERY) -> None:
        """Begins to read, and to give signs of life; `on_end` is called in the reading thread when the peer is gone."""
        self._connection.settimeout(self._silence)
        with contextlib.suppress(OSError):  # a pair of sockets has no such option
            self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=self._read, args=(on_end,), name="hmx-line", daemon=True).start()
        threading.Thread(target=self._live, args=(beat_every,), name="hmx-beat", daemon=True).start()

    def send(self, data: bytes | memoryview) -> None:
        """Hands a frame to the peer; a connection that has ended is noticed by whoever reads it."""
        with contextlib.suppress(OSError), self._sending:
            self._put(_DATA, data)

    def say_farewell(self, farewell: Farewell) -> None:
        """The last frame; the peer may still send."""
        with contextlib.suppress(OSError), self._sending:
            self._put(_END, farewell.encode())
            self._connection.shutdown(socket.SHUT_WR)

    def receive(self, seconds: float) -> bytes | None:
        """The next frame, or None if none has come after `seconds`."""
        try:
            return self._frames.get(timeout=seconds)
        except queue.Empty:
            return None

    def close(self) -> None:
        """Ends the connection."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()

    def _put(self, kind: bytes, data: bytes | memoryview) -> None:
        view = memoryview(data)
        self._connection.sendall(_HEADER.pack(kind, len(view)))
        for start in range(0, len(view), _PIECE):
            self._connection.sendall(view[start : start + _PIECE])

    def _read(self, on_end: Callable[[Line], None]) -> None:
        try:
            while self.farewell is None:
                self._take()
        except TimeoutError:
            self.lost = f"nothing was heard of it for {self._silence:.0f} seconds"
        except (OSError, ValueError, TypeError, struct.error) as problem:
            self.lost = f"its connection ended ({' '.join(str(problem).split())[:100] or type(problem).__name__})"
        on_end(self)
        self.ended.set()

    def _take(self) -> None:
        kind, size = _HEADER.unpack(read_exactly(self._connection, _HEADER.size))
        if size > (SMALL if kind != _DATA else self._limit):
            raise ValueError("it sent more than was asked for")
        data = read_exactly(self._connection, size)
        if kind == _DATA:
            self._frames.put(data)
        elif kind == _END:
            self.farewell = _farewell(json.loads(data))

    def _live(self, every: float) -> None:
        while not self.ended.wait(every):
            # A connection that is busy sending is life enough.
            if self._sending.acquire(blocking=False):
                try:
                    self._put(_BEAT, b"")
                except OSError:
                    return
                finally:
                    self._sending.release()


def _farewell(said: object) -> Farewell:
    match said:
        case [str(message), str(hint), int(code)] if code in set(ExitCode):
            return Farewell(printable(message), printable(hint), code)
    raise ValueError("it left with words that mean nothing")


def read_exactly(connection: socket.socket, size: int) -> bytes:
    """That many bytes.

    Raises:
        OSError: the connection ended before.
    """
    data = bytearray()
    while len(data) < size:
        piece = connection.recv(min(size - len(data), _PIECE))
        if not piece:
            raise ConnectionResetError("closed by the other side")
        data += piece
    return bytes(data)


def send_hello(connection: socket.socket, hello: dict[str, object]) -> None:
    """The first words of whoever opens a connection."""
    data = json.dumps(hello).encode()
    connection.sendall(_HELLO.pack(_MAGIC, len(data)) + data)


def read_hello(connection: socket.socket, seconds: float = 5.0) -> dict[str, object] | None:
    """The first words of whoever opened a connection; None if it is no process of hmx."""
    connection.settimeout(seconds)
    try:
        magic, size = _HELLO.unpack(read_exactly(connection, _HELLO.size))
        hello = json.loads(read_exactly(connection, size)) if magic == _MAGIC and size <= SMALL else None
    except (OSError, ValueError, RecursionError):
        return None
    return hello if isinstance(hello, dict) else None
