"""Messages between a trainer and a worker: one byte per step, and JSON with optional bytes for everything else."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Mapping
from typing import Any

STEP, DONE, MESSAGE, ERROR = b"s", b"k", b"m", b"e"
_HEAD = struct.Struct("<IQ")  # bytes of the JSON, bytes after it
_CHUNK = 1 << 20


def send(link: socket.socket, kind: bytes, body: Mapping[str, object], payload: bytes = b"") -> None:
    """Send a message with a JSON object; OSError if the other end is closed."""
    text = json.dumps(body).encode()
    link.sendall(kind + _HEAD.pack(len(text), len(payload)) + text)
    if payload:
        link.sendall(payload)


def receive(link: socket.socket) -> tuple[bytes, dict[str, Any], bytes]:
    """Wait for a message, and return its kind, and unless it is of one byte, its JSON object and bytes.

    The kind is empty if the other end is closed. BlockingIOError if the socket has a time limit (`SO_RCVTIMEO`) and
    nothing arrives.
    """
    kind = link.recv(1)
    if kind in (MESSAGE, ERROR):
        size, more = _HEAD.unpack(read_exactly(link, _HEAD.size))
        return kind, json.loads(read_exactly(link, size)), read_exactly(link, more)
    return kind, {}, b""


def read_exactly(link: socket.socket, size: int) -> bytes:
    """Return exactly `size` bytes; ConnectionResetError if the other end is closed before."""
    data = bytearray()
    while len(data) < size:
        some = link.recv(min(size - len(data), _CHUNK))
        if not some:
            raise ConnectionResetError("closed by the other side")
        data += some
    return bytes(data)
