"""Exchange small messages between the processes of a run, and notice when one of them is gone.

Process 0 is the coordinator: it alone reads and writes the run folder. The others are workers: they compute their part
of the run and follow the coordinator's decisions. All processes must call the same methods in the same order.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator

from hmx.errors import ExitCode, HmxError, one_line
from hmx.runs.cluster.transport import SMALL, Connection, ExitMessage

LINGER = 10.0  # seconds to wait at the end until the other processes have read the exit message

_LOOK_UP = 0.2  # seconds
_ANY_SIZE = 1 << 62

Lost = Callable[[HmxError], None]


class Group:
    """The processes of a run, seen from one of them.

    Methods that exchange data raise `HmxError` if a process of the run is gone.

    Args:
        index: process id of this process.
        count: number of processes.
        on_lost: called on a worker, in another thread, when the coordinator is gone without an exit message. JAX
            ends the worker a fifth of a second later.
    """

    def __init__(self, index: int = 0, count: int = 1, on_lost: Lost | None = None) -> None:
        self.index, self.count = index, count
        self.names = [socket.gethostname()] * count
        self.hint = "start all processes again"  # shown when a process is gone
        self._connections: dict[int, Connection] = {}
        self._on_lost = on_lost
        self._problem: HmxError | None = None
        self._raised = False
        self._over = threading.Event()
        self._lock = threading.Lock()

    @property
    def is_coordinator(self) -> bool:
        """Return whether this process reads and writes the run folder."""
        return self.index == 0

    def add(self, index: int, name: str, peer: socket.socket) -> None:
        """Add a process that runs on the machine `name`."""
        self.names[index] = name
        connection = self._connections[index] = Connection(peer, SMALL if self.is_coordinator else _ANY_SIZE)
        connection.start(lambda ended: self._on_end(index, ended))

    def broadcast(self, data: bytes | memoryview = b"") -> bytes | memoryview:
        """Send `data` from the coordinator to all workers; return it on every process."""
        self._raise()
        if not self.is_coordinator:
            return self._receive(0)
        for connection in self._connections.values():
            connection.send(data)
        return data

    def gather(self, data: bytes) -> list[bytes]:
        """Return the data of all processes by process id on the coordinator, and nothing on workers."""
        self._raise()
        if not self.is_coordinator:
            self._connections[0].send(data)
            return []
        return [data, *(self._receive(index) for index in range(1, self.count))]

    def all_reduce_max(self, value: int) -> int:
        """Return the largest of the values of all processes."""
        if self.count == 1:
            return value
        values = self.gather(json.dumps(int(value)).encode())
        return int(json.loads(bytes(self.broadcast(json.dumps(max(map(int, values), default=0)).encode()))))

    def wait_for_end(self) -> None:
        """Wait, on a worker, until the coordinator has ended the run; raise if it failed or a process is gone."""
        while not self.is_coordinator and not self._over.wait(_LOOK_UP):
            self._raise()

    def check(self) -> None:
        """Raise the failure of another process, once: the clean-up afterwards must not be interrupted."""
        if self._problem is not None and not self._raised:
            self._raised = True
            self._raise()

    @contextlib.contextmanager
    def explaining(self) -> Iterator[None]:
        """Replace an error inside the block by the loss of a process if that caused it.

        A collective operation may notice the closed connection first, and JAX raises several types for that.
        """
        try:
            yield
        except HmxError:
            raise
        except Exception:
            end = time.monotonic() + LINGER / 2
            while self.count > 1 and time.monotonic() < end:
                self._raised = self._problem is not None
                self._raise()
                time.sleep(_LOOK_UP)
            raise

    def leave(self, error: BaseException | None = None) -> None:
        """Send the other processes the outcome of this one, and wait until they have read it."""
        if error is None:
            self._over.set()
        exit_message = ExitMessage() if error is None else self._exit_message(error)
        # The coordinator forwards the failure of another process to all.
        if self.is_coordinator or (error is not None and self._problem is None):
            for connection in self._connections.values():
                connection.send_exit(exit_message)
        if error is not None and self.is_coordinator:
            end = time.monotonic() + LINGER
            for connection in self._connections.values():
                connection.ended.wait(max(0.0, end - time.monotonic()))

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()

    def _exit_message(self, error: BaseException) -> ExitMessage:
        if isinstance(error, HmxError):
            if self._problem is not None:
                return ExitMessage(error.message, error.hint, int(error.exit_code))
            return ExitMessage(f"{self.label(self.index)} failed: {error.message}", error.hint, int(error.exit_code))
        text = one_line(f"{type(error).__name__}: {error}")
        return ExitMessage(f"{self.label(self.index)} failed: {text}", self.hint, int(ExitCode.UNEXPECTED))

    def _on_end(self, index: int, connection: Connection) -> None:
        """Handle the end of a connection, in the thread that reads it."""
        received = connection.exit_message
        if received is not None and not received.message:
            self._over.set()
            return
        if received is not None:
            problem = HmxError(received.message, received.hint or self.hint, ExitCode(received.code))
        else:
            problem = HmxError(f"lost {self.label(index)}: {connection.lost}", self.hint, ExitCode.UNEXPECTED)
        with self._lock:
            if self._over.is_set() or self._problem is not None:
                return
            self._problem = problem
        if self.is_coordinator:
            for other in self._connections.values():
                other.send_exit(ExitMessage(problem.message, problem.hint, int(problem.exit_code)))
        elif received is None and self._on_lost is not None:
            self._on_lost(problem)

    def _receive(self, index: int) -> bytes:
        connection = self._connections[index]
        while True:
            # Checked before receiving, so that a frame sent just before the end is not lost.
            ended = connection.ended.is_set()
            frame = connection.receive(0 if ended else _LOOK_UP)
            if frame is not None:
                return frame
            self._raise()
            if ended:
                raise HmxError(f"{self.label(index)} ended before the others", self.hint, ExitCode.UNEXPECTED)

    def _raise(self) -> None:
        if (problem := self._problem) is not None:
            raise HmxError(problem.message, problem.hint, problem.exit_code)

    def label(self, index: int) -> str:
        """Return the id and the host of a process, for messages."""
        return f"process {index} on {self.names[index]}"


ALONE = Group()
"""The group of a run with one process."""
