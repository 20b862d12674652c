"""Stopping a run: the first signal asks for a clean stop after the chunk, the second ends it at once."""

from __future__ import annotations

import contextlib
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any, TypeVar

T = TypeVar("T")

_LOOK_UP = 0.2  # seconds

STOPPING = (signal.SIGINT, signal.SIGTERM)


class StopNow(KeyboardInterrupt):
    """A second signal: stop without saving. The last complete checkpoint stays as it is.

    A compiled program may still be running in another thread, so a command that catches this
    should leave by `os._exit(128 + signum)` once its own output is flushed.
    """

    def __init__(self, signum: int) -> None:
        super().__init__(f"stopped by signal {signum}")
        self.signum = signum
        self.hint = ""  # how to go on


class SignalGuard:
    """Turns SIGINT and SIGTERM into a request while the `with` block runs.

    `requested` is the first signal received, or None. A second one raises `StopNow` in the main
    thread; a third meets the system's default action. Outside the main thread, where Python cannot
    install handlers, the guard does nothing.
    """

    def __init__(self, on_request: Callable[[int], None] | None = None) -> None:
        self.requested: int | None = None
        self._on_request = on_request
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> SignalGuard:
        if threading.current_thread() is threading.main_thread():
            for signum in STOPPING:
                # A signal ignored by the parent (nohup, a background job of a script) stays ignored.
                if signal.getsignal(signum) is not signal.SIG_IGN:
                    self._previous[signum] = signal.signal(signum, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for signum, handler in self._previous.items():
            signal.signal(signum, handler)
        self._previous = {}

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if self.requested is None:
            self.requested = signum
            if self._on_request is not None:
                self._on_request(signum)
            return
        for other in self._previous:
            signal.signal(other, signal.SIG_DFL)
        raise StopNow(signum)


_watched: list[Callable[[], None]] = []


@contextlib.contextmanager
def watching(check: Callable[[], None]) -> Iterator[None]:
    """Within the block, whoever waits in the main thread calls `check` now and then; what it raises ends the wait."""
    _watched.append(check)
    try:
        yield
    finally:
        _watched.remove(check)


def interruptible(work: Callable[[], T]) -> T:
    """Runs `work` in another thread and waits for it, so that a signal is handled while it blocks.

    Python runs signal handlers in the main thread between two of its own instructions: a compilation or
    a device wait in the main thread would hold them back until it ends.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    result: list[T] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            result.append(work())
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=run, name="hmx-work", daemon=True)
    thread.start()
    wait_for(thread)
    if failure:
        raise failure[0]
    return result[0]


def wait_for(thread: threading.Thread, seconds: float = math.inf) -> bool:
    """Waits for a thread to end, no longer than `seconds`, and handles signals meanwhile; False if it has not.

    It looks up now and then: of two signals that come at once, the system may give the second to another thread,
    and that does not wake the main one. What `watching` was given is asked then, too.
    """
    end = time.monotonic() + seconds
    while thread.is_alive() and (left := end - time.monotonic()) > 0:
        thread.join(min(left, _LOOK_UP))
        if threading.current_thread() is threading.main_thread():
            for check in _watched:
                check()
    return not thread.is_alive()
