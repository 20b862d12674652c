"""`hmx runs`: what runs there are, and whether one is whole. Neither needs JAX."""

from __future__ import annotations

import dataclasses
import datetime
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from hmx.records import jsonl, layout, lock, meta
from hmx.records import verify as records
from hmx.records.layout import find_run
from hmx.records.meta import Meta
from hmx.records.paths import DEFAULT_ROOT, RunPaths
from hmx.records.plain import JsonValue, plain_object
from hmx.records.verify import Damage

SCHEMA = 1
STATES = ("running", "finished", "interrupted", "failed", "crashed", "unknown")
_RETURN = "train/mean_episode_return"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunRow:
    """One run in a list."""

    name: str
    path: Path
    state: str  # of STATES: crashed: running, but no process holds the lock; unknown: meta.json is unreadable
    update: int
    env_steps: int  # per seed
    last_return: float | None  # mean episode return of the newest update that has one, over its seeds
    size: int  # bytes on disk, of all files
    created: str  # ISO 8601 in UTC; "" where it is not known
    age: float | None  # seconds since anything was last written about it


@dataclasses.dataclass(frozen=True, kw_only=True)
class ListResult:
    """The runs below a folder, by name."""

    root: Path
    runs: tuple[RunRow, ...]

    def to_json(self) -> dict[str, JsonValue]:
        """Return a JSON object with stable keys."""
        return {"schema": SCHEMA, **plain_object(self)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class VerifyResult:
    """Whether a run folder is whole."""

    run: Path
    intact: tuple[int, ...]  # updates of the intact checkpoints, oldest first
    damage: tuple[Damage, ...]
    notes: tuple[Damage, ...]  # what a run may have, as a lock that was left behind

    def to_json(self) -> dict[str, JsonValue]:
        """Return a JSON object with stable keys."""
        found = plain_object(self)
        return {"schema": SCHEMA, "whole": not self.damage, "intact_checkpoints": found.pop("intact"), **found}


def list_runs(root: str | Path = DEFAULT_ROOT) -> ListResult:
    """Every run below a folder; one whose files are damaged is listed with what can be known of it.

    A thousand runs take about a second: of each, the meta data and the end of the metrics are read.
    """
    root = Path(root)
    return ListResult(root=root, runs=tuple(_row(RunPaths(root, name)) for name in layout.list_runs(root)))


def verify(run: str | Path, root: str | Path = DEFAULT_ROOT) -> VerifyResult:
    """Checks everything in a run folder whose content is known; changes nothing.

    Raises:
        HmxError: there is no such run (exit code 3). Damage is no error here but the result.
    """
    paths = find_run(run, root)
    found = records.verify(paths)
    return VerifyResult(run=paths.folder, intact=found.intact, damage=found.damage, notes=found.notes)


def _row(paths: RunPaths) -> RunRow:
    known = meta.find(paths.meta)
    tail = _tail(paths)
    update = max((jsonl.update_of(record) or 0 for record in tail), default=0)
    update, env_steps = max(
        (update, max((_steps(record) for record in tail), default=0)),
        (known.update, known.env_steps) if known else (0, 0),
    )
    size, newest = _measure(paths.folder)
    return RunRow(
        name=paths.name,
        path=paths.folder,
        state=state_of(paths, known),
        update=update,
        env_steps=env_steps,
        last_return=_last_return(tail),
        size=size,
        created=known.created if known else "",
        age=max(0.0, datetime.datetime.now(datetime.UTC).timestamp() - newest) if newest else None,
    )


def _tail(paths: RunPaths) -> list[dict[str, object]]:
    try:
        return [record for record in jsonl.tail(paths.metrics) if jsonl.update_of(record) is not None]
    except OSError:
        return []


def _steps(record: Mapping[str, object]) -> int:
    value = record.get("env_steps")
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _last_return(tail: Sequence[Mapping[str, object]]) -> float | None:
    found = ((jsonl.update_of(record) or 0, _number(record.get(_RETURN))) for record in tail)
    finite = [(update, value) for update, value in found if value is not None]
    if not finite:
        return None
    newest = max(update for update, _ in finite)
    values = [value for update, value in finite if update == newest]
    return math.fsum(values) / len(values)


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # a whole number of more than 308 digits
        return None


def state_of(paths: RunPaths, known: Meta | None) -> str:
    """The state of a run, of `STATES`; `known` is what its meta.json says, None where that cannot be read."""
    if known is None:
        return "unknown"
    if known.state != "running":
        return known.state
    try:
        return "running" if lock.holding(paths).state == "held" else "crashed"
    except OSError:
        return "crashed"


def _measure(folder: Path) -> tuple[int, float]:
    """Bytes of all files, and when the newest of the run's own was written."""
    size, newest = 0, 0.0
    stack = [str(folder)]
    while stack:
        try:
            with os.scandir(stack.pop()) as entries:
                for entry in entries:
                    status = entry.stat(follow_symlinks=False)
                    if entry.is_dir(follow_symlinks=False):
                        stack.append(entry.path)
                    else:
                        size += status.st_size
                        newest = max(newest, status.st_mtime)
        except OSError:
            continue
    return size, newest
