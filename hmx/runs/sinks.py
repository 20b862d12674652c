"""Send the records of a run to sinks; only a failure of the local metrics file stops the run."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Literal

from hmx.config.schema import Config
from hmx.errors import ExitCode, HmxError, one_line
from hmx.records.jsonl import MetricsWriter

Record = Mapping[str, float | int]
EndState = Literal["finished", "paused", "interrupted", "failed", "aborted"]


@dataclasses.dataclass(frozen=True)
class RunInfo:
    """Facts about a run that a sink gets before the first record."""

    name: str
    path: Path
    config: Config
    created: str  # when the run folder was made; the same after a resume
    first_update: int  # updates already done, 0 for a new run
    total_updates: int
    steps_per_update: int  # environment steps per update and seed
    num_seeds: int
    device: str = ""  # empty if nothing is computed, as in `hmx runs sync`
    run_id: str = ""
    compile_time: str = ""  # note about earlier ones, such as "44 s last time"

    @property
    def total_steps(self) -> int:
        """Return the environment steps per seed at the end of the run."""
        return self.total_updates * self.steps_per_update


@dataclasses.dataclass(frozen=True)
class Ending:
    """The finding for which `run.on_finding` ends a run early, and what may prevent it."""

    text: str  # what was found, with the evidence and the rule
    rule: str  # of hmx doctor
    since: int  # environment steps at which it began
    changes: Mapping[str, object]  # the option that may prevent it, with its new value; empty without such an option
    healthy: int | None = None  # update of the last healthy checkpoint that is kept
    refused: str = ""  # why no rollback followed


class Sink:
    """A receiver of records; every hook does nothing unless overridden.

    Hooks are called from the host between compiled chunks, in the order `start`, then any mix of
    `phase`, `record` and `warn`, then `close` once.
    """

    required = False  # a required sink that fails ends the run; any other is dropped with a warning
    prints = True  # whether stdout has what it prints; otherwise stderr, since stdout may be JSON
    name = "sink"

    def start(self, info: RunInfo) -> None:
        """Handle the start of a run or of its resumption."""

    def phase(self, name: str) -> None:
        """Handle a new phase: compiling, training, measuring, saving, evaluating or stopping."""

    def record(self, record: Record) -> None:
        """Take the record of one update of one seed: its counters, its times and the metrics that have data."""

    def flush(self) -> None:
        """Handle the end of the records of a chunk."""

    def notices(self) -> Iterable[str]:
        """Return the warnings due after a chunk."""
        return ()

    def ending(self) -> Ending | None:
        """Return why the run should end before the next chunk; None if it should not."""
        return None

    def warn(self, message: str) -> None:
        """Show a problem that does not stop the run."""

    def close(self, state: EndState) -> None:
        """Handle the end of the run: it was `aborted` by a second signal.

        After `aborted`, hooks must not wait.
        """


class JsonlSink(Sink):
    """The local metrics file: one line per update and seed, on disk before the next chunk starts."""

    required = True
    _run_id = ""
    _writer: MetricsWriter | None = None

    def __init__(self, path: Path) -> None:
        self.name, self._path = str(path), path

    def start(self, info: RunInfo) -> None:
        """Open the file for appending."""
        self._writer, self._run_id = MetricsWriter(self._path), info.run_id

    def record(self, record: Record) -> None:
        """Append one line."""
        if self._writer is not None:
            self._writer.write({"run": self._run_id, **record} if self._run_id else record)

    def flush(self) -> None:
        """Flush the lines of the chunk to disk."""
        if self._writer is not None:
            self._writer.flush()

    def close(self, state: EndState) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


class SinkGroup:
    """Pass phases, records and warnings to several sinks.

    An optional sink that fails is dropped and named in `warnings`; a required one that fails raises `HmxError`.
    """

    def __init__(self, sinks: Iterable[Sink]) -> None:
        self.sinks = list(sinks)
        self.warnings: list[str] = []
        self._busy = 0
        self._waiting: list[str] = []

    def has(self, kind: type[Sink]) -> bool:
        """Return whether a sink of that kind still takes records."""
        return any(isinstance(sink, kind) for sink in self.sinks)

    def ending(self) -> Ending | None:
        """Return why a sink ends the run; None if it should continue."""
        return next(filter(None, (sink.ending() for sink in self.sinks)), None)

    def start(self, info: RunInfo) -> None:
        """See `Sink.start`."""
        self._each(lambda sink: sink.start(info))

    def phase(self, name: str) -> None:
        """See `Sink.phase`."""
        self._each(lambda sink: sink.phase(name))

    def phase_from_signal(self, phase: str) -> None:
        """Announce a phase from a signal handler; it is delayed while a sink is being called."""
        if self._busy:
            self._waiting.append(phase)
        else:
            self.phase(phase)

    def records(self, records: Iterable[Record]) -> None:
        """Pass on the records of one chunk, flush, and show the warnings of the sinks."""
        records = list(records)
        notices: list[str] = []

        def write(sink: Sink) -> None:
            for record in records:
                sink.record(record)
            sink.flush()
            notices.extend(sink.notices())

        self._each(write)
        for notice in notices:
            self.warn(notice)

    def warn(self, message: str) -> None:
        """Show a warning on every sink and keep it for the result; a repeated one is dropped."""
        if message in self.warnings:
            return
        self.warnings.append(message)
        self._each(lambda sink: sink.warn(message))

    def close(self, state: EndState) -> None:
        """Close every sink, even if others fail; the failure of a required one is raised last."""
        self._busy += 1  # phases are no longer shown
        sinks, self.sinks = self.sinks, []
        self._call(sinks, lambda sink: sink.close(state))

    def _each(self, act: Callable[[Sink], None]) -> None:
        self._busy += 1
        try:
            self._call(list(self.sinks), act)
        finally:
            self._busy -= 1
        while self._waiting and not self._busy:
            self.phase(self._waiting.pop(0))

    def _call(self, sinks: Iterable[Sink], act: Callable[[Sink], None]) -> None:
        failed: list[tuple[Sink, Exception]] = []
        for sink in sinks:
            try:
                with contextlib.nullcontext() if sink.prints else contextlib.redirect_stdout(sys.stderr):
                    act(sink)
            except Exception as error:
                failed.append((sink, error))
        self.sinks = [sink for sink in self.sinks if all(sink is not other for other, _ in failed)]
        for sink, problem in failed:
            if not sink.required:
                self.warn(f"{sink.name} failed and gets no more records: {one_line(problem)}")
        for sink, problem in failed:
            if sink.required:
                hint = "check the free space and the permissions of the run folder, then run `hmx resume`"
                raise HmxError(f"cannot write {sink.name}: {one_line(problem)}", hint, ExitCode.ARTEFACT)
