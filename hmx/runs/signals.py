"""Stop a run on SIGINT, SIGTERM and SIGHUP: the first signal stops it after the current chunk, the second at once."""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextvars import ContextVar
from types import FrameType
from typing import TypeVar

from hmx.own.copies import naming_failures

T = TypeVar("T")

_LOOK_UP = 0.2  # seconds
_REPEAT = 0.5  # seconds, enough for the main thread to leave the callback

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # SIGHUP arrives when a terminal or its connection closes


class StopNow(KeyboardInterrupt):
    """Stop without saving, after a second signal; the last complete checkpoint is unchanged.

    A compiled program may still be running in another thread, so a command that catches this should flush its output
    and leave by `os._exit(128 + signum)`.
    """

    def __init__(self, signum: int) -> None:
        super().__init__(f"stopped by signal {signum}")
        self.signum = signum
        self.hint = ""  # how to continue


class SignalGuard:
    """Turn the signals of `STOPPING` into a request while the `with` block runs.

    `requested` is the first signal received, or None. A second one raises `StopNow` in the main thread; a third has the
    system's default action. Outside the main thread, where Python cannot install handlers, the guard does nothing.
    """

    def __init__(self, on_request: Callable[[int], None] | None = None) -> None:
        self.requested: int | None = None
        self._on_request = on_request
        self._repeats = False  # whether a signal will be sent again
        self._previous: dict[int, signal.Handlers | Callable[[int, FrameType | None], object] | int | None] = {}
        self._previous_hook = sys.unraisablehook
        self._terminals: list[int] = []  # standard streams that are a terminal

    def __enter__(self) -> SignalGuard:
        if threading.current_thread() is threading.main_thread():
            for signum in STOPPING:
                # Shells ignore SIGINT for background jobs of a script, nohup ignores SIGHUP; both are inherited.
                if signal.getsignal(signum) is not signal.SIG_IGN:
                    self._previous[signum] = signal.signal(signum, self._handle)
            self._previous_hook, sys.unraisablehook = sys.unraisablehook, self._unraisable
            self._terminals = [fd for fd in range(3) if os.isatty(fd)]
        return self

    def __exit__(self, *_: object) -> None:
        for signum, handler in self._previous.items():
            signal.signal(signum, handler)
        self._previous = {}
        sys.unraisablehook = self._previous_hook

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if signum == signal.SIGHUP:
            self._leave_terminals()
        if self.requested is None:
            self.requested = signum
            if self._on_request is not None:
                self._on_request(signum)
            return
        if self._repeats:
            return
        for other in self._previous:
            signal.signal(other, signal.SIG_DFL)
        raise StopNow(signum)

    def _leave_terminals(self) -> None:
        """Open /dev/null for standard streams whose terminal is gone, where writing would fail."""
        for fd in self._terminals:
            if not os.isatty(fd):
                nowhere = os.open(os.devnull, os.O_RDWR)
                os.dup2(nowhere, fd)
                os.close(nowhere)

    def _unraisable(self, lost: sys.UnraisableHookArgs) -> None:
        """Send the signal again if Python dropped `StopNow`, as in finalisers and in callbacks of gc and weakref."""
        if not isinstance(lost.exc_value, StopNow):
            self._previous_hook(lost)
            return
        self._repeats = True
        for signum in self._previous:
            signal.signal(signum, self._handle)
        threading.Timer(_REPEAT, self._repeat, (lost.exc_value.signum,)).start()

    def _repeat(self, signum: int) -> None:
        self._repeats = False
        os.kill(os.getpid(), signum)


class StopWaiting(Exception):
    """Raised by a check of `watching` to abandon the work of `interruptible` in its thread."""


_WORKING, _ABANDONED = "hmx-work", "hmx-abandoned"  # names of threads
_CHECKS: ContextVar[tuple[Callable[[], None], ...]] = ContextVar("checks", default=())  # of the blocks of `watching`


@contextlib.contextmanager
def watching(check: Callable[[], None]) -> Iterator[None]:
    """Call `check` regularly while the main thread waits inside the block; an exception it raises ends the wait."""
    before = _CHECKS.set((*_CHECKS.get(), check))
    try:
        yield
    finally:
        _CHECKS.reset(before)


@naming_failures()
def interruptible(work: Callable[[], T]) -> T:
    """Run `work` in another thread and wait for it, so that signals are handled while it blocks.

    Python runs signal handlers in the main thread, between two Python instructions: a compilation or a device wait in
    the main thread would delay them until it ends.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    thread, result = _begin(work)
    _wait(thread)
    return result.result()


@contextlib.contextmanager
def beside(work: Callable[[], object]) -> Iterator[None]:
    """Run `work` in another thread while the block runs, and wait for its end; what it returns or raises is lost."""
    thread, _ = _begin(work)
    try:
        yield
    except BaseException:
        _abandon(thread)
        raise
    _wait(thread)


def _begin(work: Callable[[], T]) -> tuple[threading.Thread, Future[T]]:
    """Start `work` in a thread that does not keep the process alive."""
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(work())
        except BaseException as error:
            result.set_exception(error)

    thread = threading.Thread(target=run, name=_WORKING, daemon=True)
    thread.start()
    return thread, result


def _wait(thread: threading.Thread) -> None:
    try:
        wait_for(thread)
    except StopWaiting:
        _abandon(thread)
        raise


def _abandon(thread: threading.Thread) -> None:
    thread.name = _ABANDONED
    atexit.register(thread.join)  # an interpreter that ends during a compilation may crash


def is_working() -> bool:
    """Return whether work that was abandoned in its thread is still running."""
    return any(thread.name == _ABANDONED for thread in threading.enumerate())


def wait_for(thread: threading.Thread, seconds: float = math.inf) -> bool:
    """Wait for a thread to end, at most `seconds`, and handle signals meanwhile; return whether it has ended.

    It wakes up regularly: of two simultaneous signals, the system may deliver the second to another thread, which does
    not wake the main one. The checks of `watching` run then, too.
    """
    end = time.monotonic() + seconds
    while thread.is_alive() and (left := end - time.monotonic()) > 0:
        thread.join(min(left, _LOOK_UP))
        if threading.current_thread() is threading.main_thread():
            for check in _CHECKS.get():
                check()
    return not thread.is_alive()
