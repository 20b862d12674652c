"""metrics.jsonl: one JSON object a line, one line per update and seed.

A number that is not finite is written as null, and the line then has a key `nonfinite`, the count of them.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from hmx.errors import ExitCode, HmxError

NONFINITE = "nonfinite"
_TAIL = 1 << 16

Record = Mapping[str, Any]


def encode(record: Record) -> str:
    """One line, without its end."""
    nonfinite = sum(isinstance(v, float) and not math.isfinite(v) for v in record.values())
    if nonfinite:
        record = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in record.items()}
        record = {**record, NONFINITE: nonfinite}
    return json.dumps(record, separators=(",", ":"), allow_nan=False)


class MetricsWriter:
    """Appends records to a file, each with a single write, so that a kill leaves at most one torn line.

    Opening repairs the end of the file: a last line that was cut is dropped. Use it as a context manager.

    Raises:
        OSError: the file cannot be opened or written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        repair(path)
        self._handle: int | None = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)

    def write(self, record: Record) -> None:
        """Appends one record."""
        if self._handle is None:
            raise ValueError(f"{self.path} has been closed")
        data = (encode(record) + "\n").encode()
        while data:
            data = data[os.write(self._handle, data) :]

    def flush(self) -> None:
        """Brings what was written to disk; for the end of a chunk."""
        if self._handle is not None:
            os.fsync(self._handle)

    def close(self) -> None:
        """Flushes and closes; a second call does nothing."""
        if self._handle is not None:
            handle, self._handle = self._handle, None
            try:
                os.fsync(handle)
            finally:
                os.close(handle)

    def __enter__(self) -> MetricsWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a file, in order; a torn last line is left out.

    Raises:
        HmxError: there is no such file, or a line that is not the last is damaged.
    """
    for _, record in _lines(path):
        yield record


def truncate_after(path: Path, update: int) -> int:
    """Drops the records of later updates than `update`, and a torn last line; the file is replaced as a whole.

    Returns:
        How many records were dropped.

    Raises:
        HmxError: there is no such file, or a line that is not the last is damaged.
        OSError: it cannot be written.
    """
    temporary = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    dropped = 0
    try:
        with temporary.open("wb") as file:
            for line, record in _lines(path):
                if record.get("update", 0) > update:
                    dropped += 1
                else:
                    file.write(line.rstrip(b"\r\n") + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return dropped


def repair(path: Path) -> int:
    """Cuts off a torn last line, and ends a whole one that lacks its line end.

    Returns:
        How many bytes were cut off; 0 for a file that is whole or not there.
    """
    try:
        file = path.open("r+b")
    except FileNotFoundError:
        return 0
    with file:
        size = file.seek(0, os.SEEK_END)
        start = _last_line(file, size)
        file.seek(start)
        line = file.read()
        if not line:
            return 0
        if _decode(line) is None:
            file.truncate(start)
            return size - start
        if not line.endswith(b"\n"):
            file.seek(size)
            file.write(b"\n")
    return 0


def _last_line(file: Any, size: int) -> int:
    """Where the last line begins, its own line end not counted."""
    step = _TAIL
    while True:
        start = max(0, size - step)
        file.seek(start)
        tail = file.read(size - start)
        end = tail[:-1].rfind(b"\n")
        if end >= 0:
            return int(start + end + 1)
        if start == 0:
            return 0
        step *= 2


def _decode(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _lines(path: Path) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Each whole line with its record."""
    damaged = 0
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if damaged:
                    hint = f"delete line {damaged} by hand, or restore the file; the checkpoints do not depend on it"
                    raise HmxError(f"{path}:{damaged}: not a JSON object", hint, ExitCode.ARTEFACT)
                record = _decode(line)
                if record is None:
                    damaged = number
                else:
                    yield line, record
    except FileNotFoundError:
        hint = "give a run folder that `hmx train` wrote"
        raise HmxError(f"there is no metrics file {path}", hint, ExitCode.ARTEFACT) from None
    except OSError as problem:
        raise HmxError(f"cannot read {path}: {problem.strerror}", "check its permissions", ExitCode.ARTEFACT) from None
