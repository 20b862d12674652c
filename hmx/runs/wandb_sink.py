"""Send records to Weights & Biases, as an optional sink that never stops a run."""

from __future__ import annotations

import contextlib
import hashlib
import queue
import threading
import time
from collections.abc import Mapping
from typing import Any, Literal

from hmx.config.codec import to_dict
from hmx.errors import ExitCode, HmxError
from hmx.records.curves import RETURN, STEPS
from hmx.runs.signals import wait_for
from hmx.runs.sinks import EndState, Record, RunInfo, Sink

Mode = Literal["online", "offline"]

_START_SECONDS = 120.0
_FINISH_SECONDS = 60.0
_WAITING = 100_000  # maximum records in the queue


class WandbSink(Sink):
    """Log every metric with a `/` in its name to wandb, at the step `env_steps`, which is the x axis of every chart.

    Each seed is a separate wandb run, in one group. A resumed run continues the same wandb run. Any failure (no
    package, no login, no network, wandb's own process gone) raises here, and `SinkGroup` drops this sink.

    A separate thread makes all calls to wandb, so that a call that hangs does not block training.
    """

    name = "wandb"

    def __init__(self, mode: Mode, project: str = "hackmatrix") -> None:
        self._mode: Mode = mode
        self._project = project
        self._queue: queue.Queue[Record | None] = queue.Queue(_WAITING)
        self._ready = threading.Event()
        self._failure: Exception | None = None
        self._exit_code = 0
        self._thread: threading.Thread | None = None

    def start(self, info: RunInfo) -> None:
        """Open one wandb run per seed; a TimeoutError says that wandb does not answer."""
        self._thread = threading.Thread(target=self._serve, args=(info,), name="hmx-wandb", daemon=True)
        self._thread.start()
        end = time.monotonic() + _START_SECONDS
        # Short waits, so that signals are handled; see `wait_for`.
        while not self._ready.wait(0.2) and time.monotonic() < end:
            pass
        if not self._ready.is_set():
            _let_go()
            raise TimeoutError(f"no answer within {_START_SECONDS:.0f} seconds")
        self._check()

    def record(self, record: Record) -> None:
        """Queue the metrics of one update."""
        self._check()
        try:
            self._queue.put_nowait(record)
        except queue.Full:
            _let_go()
            raise TimeoutError(f"{_WAITING:,} records are waiting to be sent") from None

    def close(self, state: EndState) -> None:
        """Finish the wandb runs; after a minute raise a TimeoutError, and keep the rest in the folder."""
        if state == "aborted" or self._thread is None:
            return
        self._exit_code = 1 if state == "failed" else 0
        with contextlib.suppress(queue.Full):
            self._queue.put_nowait(None)
        if not wait_for(self._thread, _FINISH_SECONDS):
            _let_go()
            raise TimeoutError("not everything was sent in time; send the rest from the run folder with `wandb sync`")
        self._check()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _serve(self, info: RunInfo) -> None:
        try:
            runs = open_runs(info, self._mode, self._project)
            self._ready.set()
            while (record := self._queue.get()) is not None:
                runs[int(record["seed"])].log(sendable(record), step=int(record["env_steps"]))
            finish_runs(runs, self._exit_code)
        except Exception as error:
            self._failure = error
        finally:
            self._ready.set()
            tear_down()


def open_runs(info: RunInfo, mode: Mode, project: str) -> dict[int, Any]:
    """Open one wandb run per seed, new or resumed.

    Raises:
        HmxError: the package is missing, or there is no login (exit code 2).
    """
    try:
        import wandb
    except ImportError as error:
        message = f"cannot import the package wandb ({error}); install it with `pip install wandb`"
        raise HmxError(message, "pip install wandb", ExitCode.USAGE) from error
    if mode == "online" and not wandb.login(prompt=False):
        message = "not logged in to wandb; run `wandb login`, or train with --wandb offline"
        raise HmxError(message, "wandb login", ExitCode.USAGE)
    runs = {}
    first = info.config.run.seed
    for seed in range(first, first + info.num_seeds):
        runs[seed] = wandb.init(
            project=project,
            name=info.name if info.num_seeds == 1 else f"{info.name}-seed{seed}",
            group=None if info.num_seeds == 1 else info.name,
            id=identity(info, seed),
            config={**to_dict(info.config), "seed": seed},
            mode=mode,
            dir=str(info.path),
            resume="allow",
            reinit="create_new",
            # By default wandb waits for minutes, prints, and redirects the output of the process.
            settings=wandb.Settings(silent=True, console="off", init_timeout=30),
        )
        runs[seed].define_metric("*", step_metric=STEPS)
        runs[seed].define_metric(RETURN, step_metric=STEPS, summary="max,last")
    return runs


def finish_runs(runs: Mapping[int, Any], exit_code: int) -> None:
    """Finish all wandb runs, even if some fail; a failure is raised last."""
    with contextlib.ExitStack() as stack:
        for run in runs.values():
            stack.callback(run.finish, exit_code=exit_code)


def tear_down() -> None:
    """Stop wandb's own process after it has written its files.

    Otherwise wandb does so when the interpreter exits: a lost network then blocks the exit, and a wandb process that is
    gone causes a traceback.
    """
    with contextlib.suppress(Exception):
        import wandb

        if wandb.run is None:  # otherwise the calling program uses wandb itself
            wandb.teardown()


def sendable(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metrics of a record that have a value."""
    return {name: value for name, value in record.items() if "/" in name and value is not None}


def identity(info: RunInfo, seed: int) -> str:
    """Return the id of the wandb run: the same after a resume, another for a new run in the same folder."""
    return hashlib.sha256(f"{info.name}|{info.created}|{seed}".encode()).hexdigest()[:16]


def _let_go() -> None:
    """Call `tear_down` without waiting for it, for when wandb does not answer."""
    thread = threading.Thread(target=tear_down, name="hmx-wandb", daemon=True)
    thread.start()
    thread.join(0.5)  # enough to remove its exit handlers
