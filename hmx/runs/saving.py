"""Write checkpoints in the background, so that training continues meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from hmx.algos.types import TrainState
from hmx.runs.device_memory import naming_shortages
from hmx.runs.signals import interruptible, wait_for

SLOW = 60.0  # seconds of waiting for a write after which it is reported

_LOOK_UP = 0.2  # seconds

Write = Callable[[], object]
Prepare = Callable[[TrainState, int, float | None], Write]


class Saver:
    """Write one checkpoint at a time in a separate thread.

    The state is copied to the host before `save` returns, so it may be donated at once. `collect` and `wait` report a
    failed write in the thread of the caller. A process that ends during a write loses only that checkpoint, since a
    checkpoint gets its name when it is complete.

    Args:
        prepare: copies the state of an update with its score, and returns the function that writes the copy.
        written: called with every update whose checkpoint is complete.
        on_slow: called repeatedly while a write takes longer than `SLOW`, with a message and whether the write is stuck
            because the system clock was set back; an exception it raises ends the wait.
    """

    def __init__(
        self,
        prepare: Prepare,
        written: Callable[[int], None] = lambda update: None,
        on_slow: Callable[[str, bool], None] = lambda message, stuck: None,
    ) -> None:
        self._prepare = prepare
        self._written = written
        self._on_slow = on_slow
        self._thread: threading.Thread | None = None
        self._update = 0
        self._error: BaseException | None = None
        self._offset = 0.0  # wall clock minus monotonic clock when the write began

    def save(self, state: TrainState, update: int, score: float | None = None) -> None:
        """Copy the state and start to write it, after the previous write has ended.

        Raises:
            HmxError: the previous write failed, or there is no memory or file handle for the copy; nothing was
                started.
        """
        self.wait()
        with naming_shortages("copying the state for a checkpoint"):
            write = interruptible(lambda: self._prepare(state, update, score))
        self._update, self._offset = update, time.time() - time.monotonic()

        def run() -> None:
            try:
                write()
            except BaseException as error:
                self._error = error

        self._thread = threading.Thread(target=run, name="hmx-save", daemon=True)
        self._thread.start()

    def collect(self) -> None:
        """Register a write that has ended, without waiting."""
        if self._thread is not None and not self._thread.is_alive():
            self.wait()

    def wait(self) -> None:
        """Wait until nothing is being written; raise the error of a write that failed."""
        if self._thread is None:
            return
        if not wait_for(self._thread, SLOW):
            self._wait_long(self._thread)
        self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error
        self._written(self._update)

    def _wait_long(self, thread: threading.Thread) -> None:
        message = f"checkpoint {self._update} is still being written after more than {SLOW:.0f} s"
        back = self._offset + time.monotonic() - time.time()
        if stuck := back > 1:
            # The array store waits for its own time stamps.
            message += f": the system clock was set back by {back:.0f} s, and the write waits until it catches up"
        message += f"; {'one signal (Ctrl-C)' if stuck else 'a second signal'} stops the run without this checkpoint"
        while not wait_for(thread, _LOOK_UP):
            self._on_slow(message, stuck)
