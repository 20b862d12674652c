"""Read metrics.jsonl for every command: its records in order, its curves by agent, and what is wrong with it.

Only a regular file is opened. Of a large file, evenly spaced parts are read, so that time and memory stay bounded.
"""

from __future__ import annotations

import contextlib
import math
import os
from array import array
from collections.abc import Iterator, Sequence, Set
from pathlib import Path
from typing import NamedTuple

from hmx.config.files import open_plain, words
from hmx.errors import counted
from hmx.records import jsonl
from hmx.records.jsonl import Record
from hmx.records.paths import METRICS

LIMIT = 64 << 20  # bytes that are read of a file: some 130,000 records
ABSENT = math.inf  # stands for the value of a metric that an update did not report; NaN for one that is not a number

RETURN, EPISODES = "train/mean_episode_return", "train/num_episodes"
STEPS = "train/env_steps"
SPEED, CPU_SPEED = "train/steps_per_sec", "train/steps_per_cpu_sec"
EVALUATED, EVALUATED_LOW, EVALUATED_HIGH = "eval/return", "eval/return_low", "eval/return_high"
UNTRAINED = "eval/random_return"
MEASURED_BEFORE = "eval/"  # group of the metrics of an agent before the update of their record
NO_RECORDS = "it has no records yet"
EMPTY = (NO_RECORDS, f"it has no {METRICS}")  # warnings of metrics that a run before its first record has, too

_TAIL = 1 << 15  # bytes at the end of a file that `read_newest` reads
_PART = 1 << 13  # bytes of a part that `part_means` reads
_PARTS = 24  # values of a small curve
_EVALUATION = f'"{EVALUATED}"'.encode()
_NO_COLUMNS = {"schema", "seed", "run"}
_NAMED = 5  # damaged lines whose numbers are given


class Records:
    """The records of a file in the order of the file, each with its environment steps.

    After they have been read, `warnings` says what was wrong. A line without environment steps counts as damaged, and a
    torn last line is skipped. Reading raises an OSError for a file that is missing or cannot be read, and a NewerSchema
    (exit code 3) for one that a later hmx wrote.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0
        self._damaged: list[int] = []
        self._size = 0

    def __iter__(self) -> Iterator[tuple[int, Record]]:
        self._size = self.path.lstat().st_size
        for number, line, record in jsonl.scan(self.path, LIMIT):
            steps = None if record is None else _steps(record)
            if record is None or steps is None:
                self._damaged += [number] if line.endswith(b"\n") else []
                continue
            self.count += 1
            yield steps, record

    @property
    def whole(self) -> bool:
        """Whether the file was read as a whole."""
        return self._size <= LIMIT

    @property
    def warnings(self) -> list[str]:
        """What was wrong with the file, and how much of it was read."""
        if self.whole:
            return damage(self._damaged)
        large = f"read {LIMIT >> 20} MiB of its {self._size >> 20:,} MiB of metrics, in evenly spaced parts"
        return [large, *damage(self._damaged, numbered=False)]


class AgentCurves:
    """The records of one agent as columns; a record replaces an earlier one with the same environment steps."""

    def __init__(self, seed: int | None, names: Set[str] | None, run: str = "") -> None:
        self.seed = seed  # None where the records do not say
        self.run = run  # name of the run in a file of several
        self.run_id = ""  # that its records name
        self.columns: dict[str, array[float]] = {}  # counters, such as `update` and `wall_time`, and metrics
        self._names = names
        self._rows: dict[int, int] = {}

    def add(self, steps: int, record: Record) -> None:
        """Add a record."""
        row, before = self._rows.get(steps), len(self._rows)
        if row is None:
            row = self._rows[steps] = before
            for column in self.columns.values():
                column.append(ABSENT)
        else:
            for column in self.columns.values():
                column[row] = ABSENT
        for name in record.keys() - _NO_COLUMNS if self._names is None else self._names & record.keys():
            if name not in self.columns:
                self.columns[name] = array("d", [ABSENT]) * len(self._rows)
            value = jsonl.number(record[name])
            self.columns[name][row] = math.nan if value is None else value

    @property
    def steps(self) -> array[int]:
        """Environment steps after each record, in the order of the file."""
        return array("q", self._rows)

    def column(self, name: str) -> array[float]:
        """Return the values of a counter or metric, one per record."""
        return self.columns.get(name) or array("d", [ABSENT]) * len(self._rows)


class MetricCurves(NamedTuple):
    """The curves of a metrics file, agents by seed, and what was wrong with the file."""

    agents: tuple[AgentCurves, ...]
    records: int = 0
    whole: bool = True  # whether all records were read
    warnings: tuple[str, ...] = ()


def read_curves(path: Path, names: Set[str] | None = None) -> MetricCurves:
    """Read the curves of a file, of all counters and metrics or of `names`; a missing or unreadable file has a warning.

    Raises:
        NewerSchema: a later hmx wrote it (exit code 3).
    """
    agents: dict[int | None, AgentCurves] = {}
    records = Records(path)
    try:
        for steps, record in records:
            found = record.get("seed")
            seed = found if type(found) is int else None
            if seed not in agents:
                agents[seed] = AgentCurves(seed, names)
            agents[seed].add(steps, record)
            agents[seed].run_id = str(record.get("run") or "")
    except FileNotFoundError:
        return MetricCurves((), warnings=EMPTY[1:])
    except OSError as problem:
        return MetricCurves((), warnings=(f"cannot read its metrics: {words(problem)}",))
    in_order = sorted(agents.values(), key=lambda agent: -1 if agent.seed is None else agent.seed)
    empty = () if agents else (NO_RECORDS,)
    return MetricCurves(tuple(in_order), records.count, records.whole, (*records.warnings, *empty))


def read_newest(path: Path) -> Record:
    """Read the last records of a file, and nothing else of it, as one record; {} if there are none to read.

    It has the highest `update` and `env_steps`, the mean return of the seeds in the newest update that has one, and the
    newest speed; None for unknown ones.
    """
    try:
        records = [record for record in jsonl.tail(path, _TAIL) if jsonl.update_of(record) is not None]
    except OSError:
        return {}
    if not records:
        return {}
    found = [(jsonl.update_of(record) or 0, jsonl.number(record.get(RETURN))) for record in records]
    newest = max((update for update, value in found if value is not None), default=None)
    returns = [value for update, value in found if update == newest and value is not None]
    return {
        "update": max(update for update, _ in found),
        "env_steps": max(_steps(record) or 0 for record in records),
        RETURN: math.fsum(returns) / len(returns) if returns else None,
        SPEED: jsonl.number(records[-1].get(SPEED)),
    }


def part_means(path: Path, metric: str, count: int) -> tuple[float, ...]:
    """Return the means of a metric over up to `count` equal parts of a file; an unreadable file has none.

    The means are weighted by the episodes of each record. Of a part only the first 8 KiB, or one record, are read.
    """
    means = []
    with contextlib.suppress(OSError), os.fdopen(open_plain(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        for part in range(count):
            begin, end = size * part // count, size * (part + 1) // count
            file.seek(max(begin - 1, 0))
            if begin:
                file.readline(jsonl.MAX_LINE)  # the rest of a line that began in the part before
            found: list[tuple[float, float]] = []
            while (at := file.tell()) < end and at < begin + _PART:
                record = jsonl.decode(file.readline(jsonl.MAX_LINE)) or {}
                if (value := jsonl.number(record.get(metric))) is not None and math.isfinite(value):
                    found.append((value, max(jsonl.number(record.get(EPISODES)) or 1.0, 1.0)))
            if found:
                means.append(sum(value * n for value, n in found) / sum(n for _, n in found))
    return tuple(means)


def evaluations(path: Path) -> tuple[float, ...]:
    """Return the mean return of random play and that of the agents at each evaluation; nothing without evaluations.

    Of a large file only the first part is read.
    """
    found: dict[int, list[float]] = {}
    untrained = None
    with contextlib.suppress(OSError), os.fdopen(open_plain(path), "rb") as file:
        while file.tell() < LIMIT and (line := file.readline(jsonl.MAX_LINE)):
            record = (jsonl.decode(line) or {}) if _EVALUATION in line else {}
            update, value = jsonl.update_of(record), jsonl.number(record.get(EVALUATED))
            if update is not None and value is not None and math.isfinite(value):
                found.setdefault(update, []).append(value)
                untrained = jsonl.number(record.get(UNTRAINED))
    levels = [] if untrained is None or not math.isfinite(untrained) else [untrained]
    return (*levels, *(math.fsum(values) / len(values) for values in found.values()))


def small_curve(path: Path) -> tuple[float, ...]:
    """Return random play and the evaluations; without these, mean returns over up to 24 equal parts of the file."""
    return evaluations(path) or part_means(path, RETURN, _PARTS)


def damage(lines: Sequence[int], numbered: bool = True) -> list[str]:
    """Return a warning about damaged lines, if there are any."""
    numbers = ", ".join(map(str, lines[:_NAMED])) + (" and more" if len(lines) > _NAMED else "")
    which = f": {numbers}" if numbered else ""
    return [f"skipped {counted(len(lines), 'damaged line')} of its metrics{which}"] if lines else []


def _steps(record: Record) -> int | None:
    for key in ("env_steps", "train/env_steps"):
        value = jsonl.number(record.get(key))
        if value is not None and 0 <= value < 2**53 and value == int(value):
            return int(value)
    return None
