"""Write TensorBoard event files with TensorBoard's own package, and send records to them during training."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hmx.config.extras import needed
from hmx.config.files import make_folder
from hmx.errors import ExitCode
from hmx.records.atomic import writing
from hmx.records.paths import EVENTS
from hmx.runs.sinks import Record, RunInfo, Sink

PATTERN = "events.out.tfevents.*"


def check_installed() -> None:
    """Refuse if TensorBoard is not installed (exit code 2); the hint installs it."""
    with needed("tensorboard", "--tensorboard"):
        import tensorboard  # noqa: F401


class EventFiles:
    """Event files of a run: in `folder`, or in `folder/seed-N` where there are several seeds.

    Every metric with a `/` in its name becomes a scalar of that name at the step `env_steps`; one that is not finite
    becomes NaN.

    Args:
        folder: of the files; it is made with the first record.
        several: whether there are several seeds.
        after: steps of the records that stay valid; TensorBoard drops those of earlier files that are later.

    Raises:
        HmxError: a file cannot be written (exit code 3).
    """

    def __init__(self, folder: Path, several: bool, after: int = 0) -> None:
        self._folder, self._several, self._after = folder, several, after
        self._writers: dict[int, Any] = {}

    def write(self, record: Mapping[str, Any]) -> None:
        """Add the metrics of a record."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [
            Summary.Value(tag=name, simple_value=float("nan" if value is None else value))
            for name, value in record.items()
            if "/" in name
        ]
        moment = float(record.get("wall_time") or time.time())
        event = Event(wall_time=moment, step=int(record["env_steps"]), summary=Summary(value=values))
        self._writer(int(record.get("seed") or 0)).add_event(event)

    def flush(self) -> None:
        """Wait until all records are in the files."""
        for writer in self._writers.values():
            writer.flush()

    def close(self) -> None:
        """Write the remaining records, and close the files."""
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()

    def _writer(self, seed: int) -> Any:
        if seed not in self._writers:
            folder = self._folder / f"seed-{seed}" if self._several else self._folder
            with writing("TensorBoard files", folder, ExitCode.ARTEFACT):
                make_folder(self._folder, parents=True)
                make_folder(folder)
            from tensorboard.compat.proto.event_pb2 import Event, SessionLog
            from tensorboard.summary.writer.event_file_writer import EventFileWriter

            with writing("TensorBoard files", folder, ExitCode.ARTEFACT):
                self._writers[seed] = EventFileWriter(str(folder))
            if self._after:
                start = SessionLog(status=SessionLog.START)
                self._writers[seed].add_event(Event(wall_time=time.time(), step=self._after + 1, session_log=start))
        return self._writers[seed]


class TensorboardSink(Sink):
    """Write event files below the run folder while it trains; a failure never stops the run."""

    name = "TensorBoard"
    _files: EventFiles | None = None

    def start(self, info: RunInfo) -> None:
        """Open the files."""
        self._files = EventFiles(info.path / EVENTS, info.num_seeds > 1, info.first_update * info.steps_per_update)

    def record(self, record: Record) -> None:
        """Add the metrics of one update."""
        if self._files is not None:
            self._files.write(record)

    def flush(self) -> None:
        """Write the records of the chunk."""
        if self._files is not None:
            self._files.flush()

    def close(self, state: str) -> None:
        """Close the files."""
        if self._files is not None and state != "aborted":
            self._files.close()
