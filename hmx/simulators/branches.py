"""The trainer's side of steps from given states: workers that answer rows of `hmx.simulators.branching`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from functools import partial

import numpy as np

from hmx.errors import ExitCode, HmxError
from hmx.registry.workers import WorkerPlan
from hmx.simulators.pool import SimulatorFailed, WorkerPool
from hmx.simulators.recipe import Recipe
from hmx.simulators.spaces import Facts, step_rows

_MARK = "SIMULATOR FAILED "


class FailedInProgram(Exception):
    """What a compiled program may raise: the error as text, since only the text comes out of the program."""

    def __init__(self, error: HmxError) -> None:
        super().__init__(_MARK + json.dumps([error.message, error.hint, int(error.exit_code)]))


@contextlib.contextmanager
def naming_failures() -> Iterator[None]:
    """Raise the failure of a simulator that ended a compiled program instead of the error of the program."""
    try:
        yield
    except Exception as error:  # JAX raises several types
        if (failure := _failure_in(error)) is not None:
            raise failure from None
        raise


def _failure_in(error: Exception) -> SimulatorFailed | None:
    for line in str(error).splitlines():
        with contextlib.suppress(ValueError):
            message, hint, code = json.loads(line.partition(_MARK)[2].rstrip())
            return SimulatorFailed(message, hint, ExitCode(code))
    return None


class Branches:
    """Workers that step copies; they end when this object does.

    Args:
        recipe: of the simulator.
        facts: of it.
        workers: number of processes, which changes no result.
        timeout: seconds after which a worker counts as hung.

    Raises:
        HmxError: the simulator fails.
    """

    def __init__(self, recipe: Recipe, facts: Facts, workers: int, timeout: float) -> None:
        self._pool: WorkerPool | None = None
        plan = WorkerPlan(workers, 1, 1)
        self._start = partial(WorkerPool, recipe, None, plan, seed=0, stream=0, timeout=timeout)
        self._pool = self._start()
        self._size = self._pool.state_size()
        self.asked, self.answered = step_rows(facts, self._size)

    def answer(self, rows: np.ndarray) -> np.ndarray:
        """Return the answers to rows, `[N]` of `asked`.

        Raises:
            FailedInProgram: a worker died, hung or raised.
        """
        try:
            if self._pool is None:
                self._pool = self._start()
            payload = b"".join(self._pool.branch(rows, self._size))
        except HmxError as error:
            self.close()
            raise FailedInProgram(error) from None
        return np.frombuffer(payload, self.answered)

    def close(self) -> None:
        """End the workers."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    __del__ = close
