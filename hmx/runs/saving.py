"""Checkpoints written in the background: training goes on while the disk works."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from hmx.agents.types import TrainState
from hmx.runs.device_memory import out_of_memory
from hmx.runs.signals import interruptible, wait_for

Prepare = Callable[[TrainState, int, float | None], Callable[[], Any]]


class Saver:
    """Writes one checkpoint at a time in a thread of its own.

    The state is copied to the host before `save` returns, so it may be donated at once. What a write came to is
    told in the thread of the caller, by `collect` or `wait`. A process that ends in between loses that write and
    nothing else, since a checkpoint has its name only when it is complete.

    Args:
        prepare: copies what is to be written of a state at an update with a score, and returns what writes the copy.
        written: told of every update whose checkpoint is complete.
    """

    def __init__(self, prepare: Prepare, written: Callable[[int], None] = lambda update: None) -> None:
        self._prepare = prepare
        self._written = written
        self._thread: threading.Thread | None = None
        self._update = 0
        self._error: BaseException | None = None

    def save(self, state: TrainState, update: int, score: float | None = None) -> None:
        """Copies the state and begins to write it, after the write before has ended.

        Raises:
            HmxError: the write before has failed, or there is no memory for the copy; nothing has begun then.
        """
        self.wait()
        with out_of_memory("copying the state for a checkpoint"):
            write = interruptible(lambda: self._prepare(state, update, score))
        self._update = update

        def run() -> None:
            try:
                write()
            except BaseException as error:
                self._error = error

        self._thread = threading.Thread(target=run, name="hmx-save", daemon=True)
        self._thread.start()

    def collect(self) -> None:
        """Takes note of a write that has ended; does not wait for one that has not.

        Raises:
            HmxError: it has failed.
        """
        if self._thread is not None and not self._thread.is_alive():
            self.wait()

    def wait(self) -> None:
        """Waits until nothing is being written.

        Raises:
            HmxError: the write has failed.
        """
        if self._thread is None:
            return
        wait_for(self._thread)
        self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error
        self._written(self._update)
