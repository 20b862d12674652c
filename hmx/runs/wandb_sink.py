"""Weights & Biases as one more sink: never needed, never in the way."""

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
from hmx.runs.signals import wait_for
from hmx.runs.sinks import Record, RunInfo, Sink

Mode = Literal["online", "offline"]

_START_SECONDS = 120.0
_FINISH_SECONDS = 60.0
_WAITING = 100_000  # records that may wait for wandb to take them


class WandbSink(Sink):
    """Sends every metric whose name has a `/` under that very name, at the step `env_steps`.

    Several seeds become as many wandb runs in one group. A run that is resumed goes on in the same
    wandb run. Whatever fails (no package, no login, no network, wandb's own process gone) raises here, and the
    fan-out goes on without.

    All calls to wandb are made by a thread of its own, so that one that hangs holds up nothing.

    Args:
        mode: `online` or `offline`.
        project: the wandb project.
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
        """Opens one wandb run per seed.

        Raises:
            HmxError: the package is missing, or nobody is logged in.
            TimeoutError: wandb does not answer.
        """
        self._thread = threading.Thread(target=self._serve, args=(info,), name="hmx-wandb", daemon=True)
        self._thread.start()
        end = time.monotonic() + _START_SECONDS
        # Not in one wait, for the reason that `wait_for` gives.
        while not self._ready.wait(0.2) and time.monotonic() < end:
            pass
        if not self._ready.is_set():
            _let_go()
            raise TimeoutError(f"no answer within {_START_SECONDS:.0f} seconds")
        self._check()

    def record(self, record: Record) -> None:
        """Hands over the metrics of one update."""
        self._check()
        try:
            self._queue.put_nowait(record)
        except queue.Full:
            _let_go()
            raise TimeoutError(f"{_WAITING:,} records are waiting to be taken") from None

    def close(self, state: str) -> None:
        """Ends the wandb runs; what has not been sent within a minute stays in the run folder.

        Raises:
            TimeoutError: something was left unsent.
        """
        if state == "aborted" or self._thread is None:
            return
        self._exit_code = 1 if state == "failed" else 0
        with contextlib.suppress(queue.Full):
            self._queue.put_nowait(None)
        if not wait_for(self._thread, _FINISH_SECONDS):
            _let_go()
            raise TimeoutError("not everything was sent in time; `wandb sync` sends the rest from the run folder")
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
    """One wandb run per seed, new or taken up again.

    Raises:
        HmxError: the package is missing, or nobody is logged in (exit code 2).
    """
    try:
        import wandb
    except ImportError as error:
        words = f"the package wandb cannot be imported ({error}); `pip install wandb` brings it"
        raise HmxError(words, "pip install wandb", ExitCode.USAGE) from error
    if mode == "online" and not wandb.login(prompt=False):
        words = "nobody is logged in to wandb; run `wandb login`, or train with --wandb offline"
        raise HmxError(words, "wandb login", ExitCode.USAGE)
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
            # wandb would otherwise wait for minutes, print, and take over the output of the process.
            settings=wandb.Settings(silent=True, console="off", init_timeout=30),
        )
    return runs


def finish_runs(runs: Mapping[int, Any], exit_code: int) -> None:
    """Ends wandb runs, each whatever becomes of the others; the first failure is raised last."""
    failures: list[Exception] = []
    for run in runs.values():
        try:
            run.finish(exit_code=exit_code)
        except Exception as error:
            failures.append(error)
    if failures:
        raise failures[0]


def tear_down() -> None:
    """Ends wandb's own process, which writes its files to the end first.

    Left to itself wandb would do so when the interpreter exits: a lost network would then hold up the exit, and a
    process that is gone would end it in a traceback.
    """
    with contextlib.suppress(Exception):
        import wandb

        if wandb.run is None:  # else the program that called us uses wandb itself
            wandb.teardown()


def sendable(record: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics of a record that have a number."""
    return {name: value for name, value in record.items() if "/" in name and value is not None}


def identity(info: RunInfo, seed: int) -> str:
    """The id of the wandb run: the same for a run and its resumptions, another for a new run in the same folder."""
    return hashlib.sha256(f"{info.name}|{info.created}|{seed}".encode()).hexdigest()[:16]


def _let_go() -> None:
    """`tear_down` without waiting for it, for when wandb does not answer."""
    thread = threading.Thread(target=tear_down, name="hmx-wandb", daemon=True)
    thread.start()
    thread.join(0.5)  # enough to take back what it registered for the exit
