"""Read and write metrics.jsonl: one JSON object per line, one line per update and seed.

A number that is not finite is written as null and counted under the key `nonfinite`. Every line has a key `schema`,
except old lines of schema 1. Schema 2 has the run id under `run`, the seconds of training under `elapsed`, and
new names of some metrics: the old ones are renamed on reading.

Unless they say otherwise, functions raise an OSError if the file is missing or the system fails to read or write it,
and a NewerSchema (exit code 3) if a later hmx wrote a line.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from hmx.config.files import open_plain, retrying, words
from hmx.errors import ExitCode, HmxError
from hmx.records.artefact import check_schema, foreign
from hmx.records.atomic import replacing, sync_folder
from hmx.records.metrics_table import RENAMED

SCHEMA = 2
NONFINITE = "nonfinite"
LARGEST = 1e100  # larger numbers count as not finite: their squares may not be
MAX_LINE = 1 << 22  # maximum bytes; a longer line counts as damaged
MOST_DAMAGED = 100  # damaged lines after which a check of a file stops
_TAIL = 1 << 16
_BLOCK = 1 << 20
_PART = 1 << 16  # bytes of a part of a large file
_RETRY_SECONDS = 0.2

Record = Mapping[str, Any]


class Mark(NamedTuple):
    """The first `size` bytes of the file, and their SHA-256."""

    size: int
    sha256: str


def encode(record: Record) -> str:
    """Return the line of a record, without its line end."""
    nonfinite = sum(isinstance(v, float) and not math.isfinite(v) for v in record.values())
    if nonfinite:
        record = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in record.items()}
        record = {**record, NONFINITE: nonfinite}
    return json.dumps(record, separators=(",", ":"), allow_nan=False)


class MetricsWriter:
    """Append records to a file, each with a single write, so that a kill leaves at most one torn line.

    Opening drops a torn last line. Use it as a context manager.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        repair(path)
        self._handle: int | None = open_plain(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        sync_folder(path.parent)

    def write(self, record: Record) -> None:
        """Append one record."""
        if self._handle is None:
            raise ValueError(f"{self.path} is closed")
        data = (encode({"schema": SCHEMA, **record}) + "\n").encode()
        while data:
            try:
                written = os.write(self._handle, data)
            except OSError:  # once more: otherwise the next checkpoint would lack this record forever
                time.sleep(_RETRY_SECONDS)
                written = os.write(self._handle, data)
            data = data[written:]

    def flush(self) -> None:
        """Flush the records to disk."""
        if self._handle is not None:
            os.fsync(self._handle)

    def close(self) -> None:
        """Flush and close; a second call does nothing."""
        if self._handle is not None:
            handle, self._handle = self._handle, None
            try:
                os.fsync(handle)
            finally:
                os.close(handle)

    def __enter__(self) -> MetricsWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Marker:
    """Mark the current end of a growing file, reading only what is new since the last mark."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._size = 0
        self._hash = hashlib.sha256()

    def mark(self) -> Mark:
        """Return the mark of the file as it is now; a missing file is empty."""
        try:
            handle = open_plain(self._path)
        except FileNotFoundError:
            return Mark(0, hashlib.sha256().hexdigest())
        with os.fdopen(handle, "rb") as file:
            if os.fstat(file.fileno()).st_size < self._size:
                self._size, self._hash = 0, hashlib.sha256()
            file.seek(self._size)
            while block := file.read(_BLOCK):
                self._hash.update(block)
                self._size += len(block)
        return Mark(self._size, self._hash.hexdigest())


def begins_with(path: Path, mark: Mark) -> bool:
    """Return whether the file still begins with the marked bytes; False if it is missing or not a regular file.

    Raises:
        Unreadable: the system fails to read it (exit code 3).
    """

    def read() -> bool:
        left, found = mark.size, hashlib.sha256()
        with os.fdopen(open_plain(path), "rb") as file:
            while left and (block := file.read(min(left, _BLOCK))):
                found.update(block)
                left -= len(block)
        return left == 0 and found.hexdigest() == mark.sha256

    try:
        return retrying(path, read)
    except OSError:
        return False


def read(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of a file in order, without a torn last line.

    Raises:
        NewerSchema: a later hmx wrote it (exit code 3).
        HmxError: it is missing or unreadable, or a line that is not the last is damaged (3).
    """
    damaged = 0
    try:
        for number, _, record in scan(path):
            if damaged:
                hint = f"delete line {damaged}, or restore the file; the checkpoints do not depend on it"
                raise HmxError(f"{path}:{damaged}: not a JSON object", hint, ExitCode.ARTEFACT)
            if record is None:
                damaged = number
                continue
            record.pop("schema", None)
            yield record
    except FileNotFoundError:
        hint = "give a run folder written by `hmx train`"
        raise HmxError(f"there is no metrics file {path}", hint, ExitCode.ARTEFACT) from None
    except OSError as problem:
        hint = "check that it is a regular file, and its permissions"
        raise HmxError(f"cannot read {path}: {words(problem)}", hint, ExitCode.ARTEFACT) from None


def tail(path: Path, size: int = _TAIL) -> list[dict[str, Any]]:
    """Return the records in the last `size` bytes of a file, oldest first, without damaged lines."""
    with os.fdopen(open_plain(path), "rb") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(0, end - size))
        lines = file.read(size).split(b"\n")
    whole = lines if end <= size else lines[1:]
    return [record for line in whole if line and (record := decode(line)) is not None]


def after(path: Path, start: int) -> tuple[int, list[dict[str, Any]]]:
    """Return the records of the complete lines from byte `start` on, and the start of the next line.

    A file that has become shorter was truncated by a resumption; reading continues from its new end. A missing file is
    empty.
    """
    try:
        handle = open_plain(path)
    except FileNotFoundError:
        return 0, []
    with os.fdopen(handle, "rb") as file:
        start = min(start, os.fstat(handle).st_size)
        file.seek(start)
        lines = file.read().rpartition(b"\n")[0]
    records = [record for line in lines.split(b"\n") if line and (record := decode(line)) is not None]
    return start + len(lines) + bool(lines), records


def cut(path: Path, size: int) -> None:
    """Truncate the file to its first `size` bytes; it must have that many."""
    with os.fdopen(open_plain(path, os.O_RDWR), "r+b") as file:
        if file.seek(0, os.SEEK_END) < size:
            raise OSError(0, f"the file has fewer than {size:,} bytes")
        file.truncate(size)
        os.fsync(file.fileno())


def salvage(path: Path, update: int, run_id: str = "") -> list[int]:
    """Keep the records up to `update`, and drop later ones and damaged lines; the file is replaced atomically.

    A torn last line does not count as damaged, since a kill leaves one; a record of another run than `run_id` does.

    Returns:
        The numbers of the damaged lines.
    """
    damaged: list[int] = []
    with replacing(path) as file:
        for line, _ in _until(path, update, run_id, damaged):
            file.write(line.rstrip(b"\r\n") + b"\n")
    return damaged


def adopt(source: Path, target: Path, update: int, run_id: str, new_id: str) -> list[int]:
    """Write the records of a run up to `update` to a new file, as records of the run `new_id`.

    Damaged lines are left out, as `salvage` does; after `MOST_DAMAGED` of them nothing more is read.

    Returns:
        The numbers of the damaged lines.
    """
    damaged: list[int] = []
    with replacing(target) as file:
        for _, record in _until(source, update, run_id, damaged, MOST_DAMAGED):
            file.write((encode({**record, "schema": SCHEMA, "run": new_id}) + "\n").encode())
    return damaged


def _until(
    path: Path, update: int, run_id: str, damaged: list[int], most: int | None = None
) -> Iterator[tuple[bytes, Record]]:
    """Yield the lines and records of a run up to `update`; add the numbers of damaged lines to `damaged`.

    After `most` damaged lines nothing more is read.
    """
    for number, line, record in scan(path):
        number_of = None if record is None or foreign(run_of(record), run_id) else update_of(record)
        if record is None or number_of is None:
            damaged += [number] if line.endswith(b"\n") else []
        elif number_of <= update:
            yield line, record
        if most is not None and len(damaged) >= most:
            return


class Survey(NamedTuple):
    """The content of a metrics file."""

    records: int
    last: int  # the highest update; 0 without records
    damaged: tuple[int, ...]  # numbers of the lines that are not records, except for a torn last one
    torn: bool  # whether the last line is incomplete
    missing: tuple[tuple[int, int], ...]  # first and last update of each gap
    repeated: tuple[int, ...]  # updates whose records are repeated later
    runs: tuple[str, ...]  # ids of the runs that wrote records
    whole: bool = True  # whether the file was read to its end


def survey(path: Path) -> Survey:
    """Read a file and check the sequence of its records; stop after `MOST_DAMAGED` damaged lines."""
    records = last = 0
    torn = False
    damaged: list[int] = []
    missing: list[tuple[int, int]] = []
    repeated: list[int] = []
    seen: set[object] = set()  # seeds of the current update
    runs: dict[str, None] = {}
    for number, line, record in scan(path):
        update = None if record is None else update_of(record)
        if record is None or update is None:
            torn = not line.endswith(b"\n") and len(line) < MAX_LINE
            damaged += [] if torn else [number]
            if len(damaged) >= MOST_DAMAGED:
                break
            continue
        records += 1
        runs[run_of(record)] = None
        if update > last + 1:
            missing.append((last + 1, update - 1))
        seed = str(record.get("seed"))
        if update < last or (update == last and seed in seen):
            repeated.append(update)
        seen = {seed} if update > last else seen | {seed}
        last = max(last, update)
    runs.pop("", None)
    gaps, again, whole = tuple(missing), tuple(dict.fromkeys(repeated)), len(damaged) < MOST_DAMAGED
    return Survey(records, last, tuple(damaged), torn, gaps, again, tuple(runs), whole)


def scan(path: Path, limit: int | None = None) -> Iterator[tuple[int, bytes, dict[str, Any] | None]]:
    """Yield each line with its number and its record; the record of a damaged line is None.

    Of a file with more than `limit` bytes, evenly spaced parts of about that size in all are read, the last one at the
    end of the file, and lines are numbered as they are read.
    """
    number = 0
    with os.fdopen(open_plain(path), "rb") as file:
        for start, end in _parts(os.fstat(file.fileno()).st_size, limit):
            file.seek(start)
            if start and not file.readline(int(end - start)).endswith(b"\n"):
                continue  # no line begins in this part
            while file.tell() < end and (line := file.readline(MAX_LINE)):
                number += 1
                record = decode(line)
                if record is not None:
                    check_schema(record.get("schema"), SCHEMA, f"{path}:{number}")
                yield number, line, record


def _parts(size: int, limit: int | None) -> Iterator[tuple[int, float]]:
    """Yield where each part of a file that is read begins and ends."""
    if limit is None or size <= limit:
        yield 0, math.inf
        return
    last = max(limit // _PART, 2) - 1
    for part in range(last + 1):
        start = (size - _PART) * part // last
        yield start, start + _PART


def number(value: object) -> float | None:
    """Return a number of a record; None for other types, and for numbers that are not finite or above `LARGEST`."""
    return float(value) if type(value) in (int, float) and abs(value) <= LARGEST else None  # type: ignore[arg-type]


def update_of(record: Record) -> int | None:
    """Return the update of a record; None if it has none."""
    value = record.get("update")
    return value if type(value) is int else None


def run_of(record: Record) -> str:
    """Return the id of the run that wrote a record; "" before schema 2."""
    value = record.get("run", "")
    return value if type(value) is str else "unknown"


def repair(path: Path) -> int:
    """Remove a torn last line, or add the line end that a complete one lacks; return the number of bytes removed."""
    try:
        file = os.fdopen(open_plain(path, os.O_RDWR), "r+b")
    except FileNotFoundError:
        return 0
    with file:
        size = file.seek(0, os.SEEK_END)
        start = _last_line(file, size)
        file.seek(start)
        line = file.read()
        if not line:
            return 0
        if decode(line) is None:
            file.truncate(start)
            return size - start
        if not line.endswith(b"\n"):
            file.seek(size)
            file.write(b"\n")
    return 0


def _last_line(file: BinaryIO, size: int) -> int:
    """Return the position of the last line."""
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


def decode(line: bytes) -> dict[str, Any] | None:
    """Return the record of a line, with the present metric names; None for a damaged line."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    if RENAMED.keys().isdisjoint(record):
        return record
    return {RENAMED.get(str(name), str(name)): value for name, value in record.items()}
