"""Where the records of a run go: a fan-out to any number of sinks, of which only the local file may stop the run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from hmx.config.schema import Config
from hmx.errors import ExitCode, HmxError
from hmx.records.jsonl import MetricsWriter

Record = Mapping[str, float | int]


@dataclasses.dataclass(frozen=True)
class RunInfo:
    """What a sink is told about the run before the first record."""

    name: str
    path: Path
    config: Config
    created: str  # when the run folder was made; the same after a resume
    first_update: int  # updates already done, 0 for a new run
    total_updates: int
    steps_per_update: int  # environment steps per update and seed
    num_seeds: int

    @property
    def total_steps(self) -> int:
        """Environment steps per seed at the end of the run."""
        return self.total_updates * self.steps_per_update


class Sink:
    """A receiver of records; every hook does nothing unless overridden.

    Hooks are called from the host between compiled chunks, in the order `start`, then any mix of
    `phase`, `record` and `warn`, then `close` once.
    """

    required = False  # a required sink that fails ends the run; any other is dropped with a warning
    name = "sink"

    def start(self, info: RunInfo) -> None:
        """The run begins or goes on."""

    def phase(self, name: str) -> None:
        """The run enters a phase: compiling, training, measuring, saving or evaluating."""

    def record(self, record: Record) -> None:
        """One update of one seed: `update`, `env_steps`, `seed`, `wall_time` and the metrics that have data."""

    def flush(self) -> None:
        """All records of a chunk have been handed over."""

    def warn(self, message: str) -> None:
        """Something went wrong that does not stop the run."""

    def close(self, state: str) -> None:
        """The run ends: `finished`, `interrupted`, `failed`, or `aborted` by a second signal, when nothing may wait."""


class JsonlSink(Sink):
    """The local record, one line per update and seed; each chunk is on disk before the next begins."""

    required = True

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = path
        self._writer: MetricsWriter | None = None

    def start(self, info: RunInfo) -> None:
        """Opens the file for appending."""
        self._writer = MetricsWriter(self._path)

    def record(self, record: Record) -> None:
        """Appends one line."""
        if self._writer is not None:
            self._writer.write(record)

    def flush(self) -> None:
        """Brings the lines of the chunk to disk."""
        if self._writer is not None:
            self._writer.flush()

    def close(self, state: str) -> None:
        """Closes the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


class SinkError(HmxError):
    """The local record of the run cannot be written."""


class Fanout:
    """Hands everything to every sink and keeps what went wrong.

    A failing optional sink is closed, dropped and named in `warnings`; a failing required one raises `SinkError`.
    """

    def __init__(self, sinks: Iterable[Sink]) -> None:
        self.sinks = list(sinks)
        self.warnings: list[str] = []
        self._busy = 0
        self._waiting: list[str] = []

    def has(self, kind: type[Sink]) -> bool:
        """Whether a sink of that kind is still taking records."""
        return any(isinstance(sink, kind) for sink in self.sinks)

    def start(self, info: RunInfo) -> None:
        """See `Sink.start`."""
        self._each(lambda sink: sink.start(info))

    def phase(self, name: str) -> None:
        """See `Sink.phase`."""
        self._each(lambda sink: sink.phase(name))

    def interject(self, phase: str) -> None:
        """`phase` for a signal handler, which may come while a sink is in the middle of something: then it waits."""
        if self._busy:
            self._waiting.append(phase)
        else:
            self.phase(phase)

    def records(self, records: Iterable[Record]) -> None:
        """Hands over the records of one chunk, then flushes."""
        records = list(records)

        def hand_over(sink: Sink) -> None:
            for record in records:
                sink.record(record)
            sink.flush()

        self._each(hand_over)

    def warn(self, message: str) -> None:
        """Keeps a warning for the result and shows it to every sink; a repeated one is kept once."""
        if message in self.warnings:
            return
        self.warnings.append(message)
        self._each(lambda sink: sink.warn(message))

    def close(self, state: str) -> None:
        """Closes every sink, whatever the others do; the failure of a required one is raised last."""
        failure: SinkError | None = None
        self._busy += 1  # nobody is left to hear of another phase
        for sink in self.sinks:
            try:
                sink.close(state)
            except Exception as error:
                if sink.required:
                    failure = failure or _sink_error(sink, error)
                else:
                    self.warnings.append(_dropped(sink, error))
        self.sinks = []
        if failure is not None:
            raise failure

    def _each(self, act: Callable[[Sink], None]) -> None:
        self._busy += 1
        try:
            self._hand_round(act)
        finally:
            self._busy -= 1
        while self._waiting and not self._busy:
            self.phase(self._waiting.pop(0))

    def _hand_round(self, act: Callable[[Sink], None]) -> None:
        failure: SinkError | None = None
        lost: list[str] = []
        for sink in list(self.sinks):
            try:
                act(sink)
            except Exception as error:
                self.sinks.remove(sink)
                if sink.required:
                    failure = failure or _sink_error(sink, error)
                else:
                    lost.append(_dropped(sink, error))
        for message in lost:
            self.warn(message)
        if failure is not None:
            raise failure


def _dropped(sink: Sink, error: Exception) -> str:
    return f"{sink.name} stopped taking records and was dropped: {_one_line(error)}"


def _sink_error(sink: Sink, error: Exception) -> SinkError:
    if isinstance(error, SinkError):
        return error
    hint = "check the free space and the permissions of the run folder, then go on with `hmx resume`"
    return SinkError(f"{sink.name} cannot be written: {_one_line(error)}", hint, ExitCode.ARTEFACT)


def _one_line(error: Exception) -> str:
    text = error.message if isinstance(error, HmxError) else str(error)
    return " ".join(text.split())[:300] or type(error).__name__
