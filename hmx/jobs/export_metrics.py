"""`hmx runs export`: the records of a run as CSV or TensorBoard event files."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TextIO

from hmx.config.textfile import quoted
from hmx.errors import ExitCode, HmxError
from hmx.jobs.requests import ExportRequest
from hmx.records import jsonl
from hmx.records.atomic import check_new, replacing, taken, writing
from hmx.records.layout import check_own, find_run
from hmx.records.logs import THEIR_NAMES
from hmx.records.paths import RunPaths
from hmx.records.plain import JsonResult
from hmx.runs.event_files import PATTERN, EventFiles, check_installed

STDOUT = Path("-")

_COUNTERS = ("update", "env_steps", "seed")
_FIRST = ("run", *_COUNTERS, "wall_time", "elapsed")
_COLUMNS = {
    "sb3": {"update": "time/iterations", "env_steps": "time/total_timesteps", "elapsed": "time/time_elapsed"},
    "cleanrl": {"env_steps": "global_step"},
}
"""Library -> counter -> its name in files of that library; event files have steps instead."""

Value = float | int | str | None
Row = dict[str, Value]


@dataclasses.dataclass(frozen=True, kw_only=True)
class MetricsExport(JsonResult):
    """The files that were written."""

    run: Path
    output: Path
    records: int
    columns: tuple[str, ...]


def export_metrics(run: str | Path, request: ExportRequest) -> MetricsExport:
    """Write the records of a run to a file, or to a folder of event files.

    CSV has a row per update and seed, and a column for every metric of the run. A metric without data is empty, and one
    that was not finite is NaN. An `output` of `-` prints CSV; without one, the file is in the
    run's reports folder, and event files are where training with `--tensorboard` writes them. With `names` of another
    library, metrics that it has too have its names, in CSV also the counters.

    Raises:
        HmxError: the output exists or cannot be written, or a package is not installed (exit code 2); no such run,
            one without records, or a damaged one (3).
    """
    paths = find_run(run)
    place = _place(paths, request)
    names = {ours: theirs for theirs, ours in THEIR_NAMES.get(request.names, {}).items()}
    names |= _COLUMNS.get(request.names, {}) if request.to == "csv" else {}
    columns, seeds, count = _survey(paths, names)
    found = MetricsExport(run=paths.folder, output=place, records=count, columns=columns)
    if request.to == "tensorboard":
        _to_events(_rows(paths, names), place, seeds > 1, request.force)
        return found
    if place == STDOUT:
        _to_csv(sys.stdout, columns, _rows(paths, names))
        return found
    with writing("the file", place), replacing(place) as file:
        text = io.TextIOWrapper(file, "utf-8", newline="")
        _to_csv(text, columns, _rows(paths, names))
        text.detach()
    return found


def _place(paths: RunPaths, request: ExportRequest) -> Path:
    """Return the output path; refuse one that exists."""
    default = paths.events if request.to == "tensorboard" else paths.reports / f"metrics.{request.to}"
    if request.output is None:
        check_own(default if request.to == "tensorboard" else paths.reports, "--output")
    place = default if request.output is None else request.output
    if place == STDOUT and request.to != "csv":
        raise HmxError(f"cannot print {request.to}: only CSV can be printed", "--to csv, or name a file with --output")
    with writing("the output", place):
        if request.to == "tensorboard":
            if place.exists() and not request.force and not (place.is_dir() and not any(place.iterdir())):
                raise taken(place)
        elif place != STDOUT:
            check_new(place, request.force, default.name)
    return place


def _rows(paths: RunPaths, names: Mapping[str, str]) -> Iterator[Row]:
    """Yield the records under other names; a damaged line is an error (exit code 3)."""
    for number, record in enumerate(jsonl.read(paths.metrics), 1):
        bad = [name for name, value in record.items() if not _is_usable(name, value)]
        bad += [name for name in _COUNTERS[:2] if name not in record]
        if bad:
            message = f"{paths.metrics} is damaged: record {number} has no usable {quoted(bad[0])}"
            raise HmxError(message, f"hmx runs verify {paths.argument}", ExitCode.ARTEFACT)
        yield {names.get(name, name): math.nan if value is None else value for name, value in record.items()}


def _is_usable(name: str, value: object) -> bool:
    if name in _COUNTERS:
        return type(value) is int and 0 <= value < 2**63
    if name == "run":
        return isinstance(value, str) and value.isprintable()
    return value is None or type(value) is float or (type(value) is int and abs(value) < 2**63)


def _survey(paths: RunPaths, names: Mapping[str, str]) -> tuple[tuple[str, ...], int, int]:
    """Return the columns in order, the number of seeds, and the number of records."""
    columns: dict[str, None] = {}
    seeds: set[Value] = set()
    count = 0
    for row in _rows(paths, names):
        count += 1
        columns.update(dict.fromkeys(row))
        seeds.add(row.get("seed"))
    if not count:
        raise HmxError(f"cannot export {paths.folder}: it has no records yet", "train it first", ExitCode.ARTEFACT)
    first = [name for name in (names.get(name, name) for name in _FIRST) if name in columns]
    return (*first, *(name for name in columns if name not in first)), len(seeds), count


def _to_csv(file: TextIO, columns: Sequence[str], rows: Iterator[Row]) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([row.get(name, "") for name in columns] for row in rows)


def _to_events(rows: Iterator[Row], folder: Path, several: bool, force: bool) -> None:
    check_installed()
    with writing("TensorBoard files", folder):
        # Only event files are replaced: the folder may contain other files.
        for old in [*folder.glob(PATTERN), *folder.glob(f"seed-*/{PATTERN}")] if force else []:
            old.unlink()
        files = EventFiles(folder, several)
        try:
            for row in rows:
                files.write(row)
        finally:
            files.close()
