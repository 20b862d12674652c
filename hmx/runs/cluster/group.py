"""The processes of one run: what they tell each other between two compiled programs, and who is still there.

Number 0 leads: it alone reads and writes the run folder. All others follow: they compute their part, and hear from
number 0 what to do. Every process calls the same methods in the same order.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator

import jax

from hmx.errors import ExitCode, HmxError
from hmx.runs.cluster.transport import SMALL, Farewell, Line

LINGER = 10.0  # seconds that a process which ends the run waits for the others to have read why

_LOOK_UP = 0.2  # seconds
_ANY_SIZE = 1 << 62

Lost = Callable[[HmxError], None]


class Group:
    """The processes of a run, seen from one of them.

    Args:
        index: of this process.
        count: of all.
        on_lost: called in another thread, on a process that follows, when number 0 is gone without a word. JAX
            ends the process a fifth of a second later, whatever it is doing.
    """

    def __init__(self, index: int = 0, count: int = 1, on_lost: Lost | None = None) -> None:
        self.index, self.count = index, count
        self.names = [socket.gethostname()] * count
        self.hint = "start all processes again"  # what to do when one is gone
        self._lines: dict[int, Line] = {}
        self._on_lost = on_lost
        self._problem: HmxError | None = None
        self._told = False
        self._over = threading.Event()
        self._lock = threading.Lock()

    @property
    def leads(self) -> bool:
        """Whether this process reads and writes the run folder."""
        return self.index == 0

    @property
    def me(self) -> str:
        """This process in words."""
        return self._name(self.index)

    def add(self, index: int, name: str, connection: socket.socket) -> None:
        """A process that has come, on the machine `name`."""
        self.names[index] = name
        line = self._lines[index] = Line(connection, SMALL if self.leads else _ANY_SIZE)
        line.start(lambda ended: self._gone(index, ended))

    def share(self, data: bytes | memoryview = b"") -> bytes | memoryview:
        """What number 0 says, to all.

        Raises:
            HmxError: a process of the run is gone.
        """
        self._raise()
        if not self.leads:
            return self._hear(0)
        for line in self._lines.values():
            line.send(data)
        return data

    def collect(self, data: bytes) -> list[bytes]:
        """What each process says, by number, on number 0; nothing elsewhere.

        Raises:
            HmxError: a process of the run is gone.
        """
        self._raise()
        if not self.leads:
            self._lines[0].send(data)
            return []
        return [data, *(self._hear(index) for index in range(1, self.count))]

    def highest(self, value: int) -> int:
        """The largest of the values of all processes.

        Raises:
            HmxError: a process of the run is gone.
        """
        if self.count == 1:
            return value
        values = self.collect(json.dumps(int(value)).encode())
        return int(json.loads(bytes(self.share(json.dumps(max(map(int, values), default=0)).encode()))))

    def wait_for_end(self) -> None:
        """Waits, on a process that follows, until number 0 has ended the run.

        Raises:
            HmxError: it ended in an error, or is gone.
        """
        while not self.leads and not self._over.wait(_LOOK_UP):
            self._raise()

    def check(self) -> None:
        """Raises once when a process is gone; what is done after that may take its time.

        Raises:
            HmxError: a process of the run is gone, or has ended it with an error.
        """
        if self._problem is not None and not self._told:
            self._told = True
            self._raise()

    @contextlib.contextmanager
    def explaining(self) -> Iterator[None]:
        """A program that failed since a process is gone is told as that."""
        try:
            yield
        except jax.errors.JaxRuntimeError:
            end = time.monotonic() + LINGER / 2
            while self.count > 1 and time.monotonic() < end:
                self._told = self._problem is not None
                self._raise()
                time.sleep(_LOOK_UP)
            raise

    def leave(self, error: BaseException | None = None) -> None:
        """Tells the others how this process ended, and gives them the time to hear it."""
        if error is None:
            self._over.set()
        farewell = Farewell() if error is None else self._farewell(error)
        # What came from another process is known to all, or will be told by number 0.
        if self.leads or (error is not None and self._problem is None):
            for line in self._lines.values():
                line.say_farewell(farewell)
        if error is not None and self.leads:
            end = time.monotonic() + LINGER
            for line in self._lines.values():
                line.ended.wait(max(0.0, end - time.monotonic()))

    def close(self) -> None:
        """Ends all connections."""
        for line in self._lines.values():
            line.close()

    def _farewell(self, error: BaseException) -> Farewell:
        if isinstance(error, HmxError):
            if self._problem is not None:
                return Farewell(error.message, error.hint, int(error.exit_code))
            return Farewell(f"{self.me} stopped: {error.message}", error.hint, int(error.exit_code))
        text = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        return Farewell(f"{self.me} stopped: {text}", self.hint, int(ExitCode.UNEXPECTED))

    def _gone(self, index: int, line: Line) -> None:
        """In the thread that read the line."""
        said = line.farewell
        if said is not None and not said.message:
            self._over.set()
            return
        if said is not None:
            problem = HmxError(said.message, said.hint or self.hint, ExitCode(said.code))
        else:
            problem = HmxError(f"{self._name(index)} is gone: {line.lost}", self.hint, ExitCode.UNEXPECTED)
        with self._lock:
            if self._over.is_set() or self._problem is not None:
                return
            self._problem = problem
        if self.leads:
            for other in self._lines.values():
                other.say_farewell(Farewell(problem.message, problem.hint, int(problem.exit_code)))
        elif said is None and self._on_lost is not None:
            self._on_lost(problem)

    def _hear(self, index: int) -> bytes:
        line = self._lines[index]
        while True:
            # Whether it has ended is asked first: what it said before that is heard all the same.
            ended = line.ended.is_set()
            frame = line.receive(0 if ended else _LOOK_UP)
            if frame is not None:
                return frame
            self._raise()
            if ended:
                raise HmxError(f"{self._name(index)} has ended before the others", self.hint, ExitCode.UNEXPECTED)

    def _raise(self) -> None:
        if (problem := self._problem) is not None:
            raise HmxError(problem.message, problem.hint, problem.exit_code)

    def _name(self, index: int) -> str:
        return f"process {index} on {self.names[index]}"


ALONE = Group()
"""A run of one process: nothing to share, nobody to wait for."""
