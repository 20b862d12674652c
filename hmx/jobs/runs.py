"""`hmx runs` and `hmx board`: list, verify, rename and remove runs, and read their metrics. Only replays need JAX."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import fnmatch
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from hmx.config.files import words
from hmx.errors import ExitCode, HmxError
from hmx.jobs.requests import ListRequest, State, VerifyRequest
from hmx.records import jsonl, layout, lock, meta
from hmx.records import verify as records
from hmx.records.curves import RETURN, SPEED, evaluations, read_newest
from hmx.records.frozen import task_of
from hmx.records.layout import find_run
from hmx.records.meta import Meta
from hmx.records.paths import DEFAULT_ROOT, METRICS, RunPaths
from hmx.records.plain import JsonResult
from hmx.records.verify import Damage, VerifyResult
from hmx.registry.derive import derive
from hmx.registry.load import load_stored

if TYPE_CHECKING:
    from hmx.jobs.evaluation import Progress

_LINE = 8192  # bytes that a record takes at most, usually
_FILES_ONLY = VerifyRequest()
_POLL = 0.5  # seconds between two looks at a file that grows

EVERY = ListRequest()


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunRow:
    """One run in a list."""

    name: str
    path: Path
    env: str  # "" if it cannot be read
    algorithm: str
    state: State
    update: int
    env_steps: int  # per seed
    total_steps: int | None  # per seed; None unless it trains
    last_return: float | None  # mean episode return of the newest update that has one, or of the newest evaluation
    steps_per_sec: float | None  # of all seeds together, in the newest record
    seconds_left: float | None  # None unless it trains
    size: int  # bytes on disk, of all files
    created: str  # ISO 8601 in UTC; "" if unknown
    age: float | None  # seconds since the run ended; for one without an end, since a file of it was written


@dataclasses.dataclass(frozen=True, kw_only=True)
class ListResult(JsonResult):
    """The runs below a folder, by name."""

    root: Path
    runs: tuple[RunRow, ...]


def list_runs(root: str | Path = DEFAULT_ROOT, request: ListRequest = EVERY) -> ListResult:
    """List the runs below a folder; a damaged run is listed with its readable values.

    A thousand runs take about a second: only meta data and the end of the metrics are read.
    """
    root, pattern = Path(root), request.match or "*"
    names = [name for name in layout.list_runs(root) if fnmatch.fnmatchcase(name, pattern)]
    rows = [row for row in (_row(RunPaths(root, name)) for name in names) if request.state in (None, row.state)]
    return ListResult(root=root, runs=tuple(_sorted(rows, request)))


_SORTED = {
    "environment": "env", "steps": "env_steps", "return": "last_return", "steps/s": "steps_per_sec",
    "remaining": "seconds_left",
}  # fmt: skip
"""Order of a request -> field of a row, where the names differ."""


def _sorted(rows: Sequence[RunRow], request: ListRequest) -> list[RunRow]:
    """Return the rows in order; those without a value come last in either order."""
    name = _SORTED.get(request.sort, request.sort)
    if name in ("name", "env", "algorithm", "state"):
        return sorted(rows, key=lambda row: (getattr(row, name), row.name), reverse=request.reverse)
    sign = -1.0 if (request.sort in ("age", "remaining")) == request.reverse else 1.0

    def key(row: RunRow) -> tuple[bool, float]:
        value = getattr(row, name)
        return value is None, 0.0 if value is None else sign * value

    return sorted(rows, key=key)


def rename(run: str | Path, name: str) -> Path:
    """Rename the folder of a run, and return its new path.

    The run.toml keeps the name under which the run was created: checkpoints are compared with it.
    """
    return layout.rename_run(find_run(run), name).folder


def removable(runs: Sequence[str | Path]) -> tuple[RunRow, ...]:
    """Return the runs that `remove` would delete; refuse a run that is training, a link, and a file of a run."""
    found: dict[Path, RunRow] = {}
    for run in runs:
        paths = find_run(run)
        layout.check_removable(paths, Path(run))
        found[paths.folder.resolve()] = _row(paths)
    return tuple(found.values())


def remove(rows: Sequence[RunRow]) -> None:
    """Delete run folders, as `removable` returned them; refuse one that a process has started to train."""
    for row in rows:
        layout.remove_run(RunPaths(row.path.parent, row.path.name))


def tail(run: str | Path, count: int, follow: bool = False) -> Iterator[dict[str, object]]:
    """Yield the last records of a run, without damaged lines; with `follow`, also new ones until it ends."""
    paths = find_run(run)
    try:
        size = paths.metrics.stat().st_size if paths.metrics.exists() else 0
        end, records = jsonl.after(paths.metrics, max(0, size - max(count, 8) * _LINE))
        yield from records[-count:] if count else ()
        while follow:
            follow = lock.holding(paths).state == "held"  # before the file is read, so that no record is missed
            end, records = jsonl.after(paths.metrics, end)
            yield from records
            time.sleep(_POLL if follow else 0)
    except OSError as problem:
        message = f"cannot read {paths.metrics}: {words(problem)}"
        raise HmxError(message, f"hmx runs verify {paths.argument}", ExitCode.ARTEFACT) from None


def verify(run: str | Path, request: VerifyRequest = _FILES_ONLY, progress: Progress | None = None) -> VerifyResult:
    """Check every known file of a run folder; damage is the result, not an error.

    If the request says so and no file is damaged, train stretches of the run again: see `hmx.jobs.replay.replay`.
    """
    paths = find_run(run)
    found = records.verify(paths)
    if not request.replay or found.damage:
        return found
    from hmx.jobs.evaluation import no_progress
    from hmx.jobs.replay import replay  # imports JAX

    resumes = known.resumes if (known := meta.find(paths.meta)) else ()
    what = "updates 1 to {:,} were copied from the run {}, and are not replayed: verify that run too"
    forks = [Damage(METRICS, what.format(one.update, one.parent.get("name"))) for one in resumes if one.parent][-1:]
    again = replay(paths, request, progress or no_progress)
    return dataclasses.replace(found, notes=(*found.notes, *forks), replay=again)


def _row(paths: RunPaths) -> RunRow:
    known = meta.find(paths.meta)
    newest = read_newest(paths.metrics)
    at = newest.get("update", 0), newest.get("env_steps", 0)
    update, env_steps = max(at, (known.update, known.env_steps) if known else (0, 0))
    size, written = _measure(paths.folder)
    state, speed = state_of(paths, known), newest.get(SPEED)
    env, algorithm = task_of(paths)
    last_return = newest.get(RETURN)
    if last_return is None:
        last_return = next(reversed(evaluations(paths.metrics)), None)
    total = left = None
    if state == "running":
        with contextlib.suppress(HmxError):
            config = load_stored(paths.config).config
            total = derive(config).total_env_steps
            left = max(total - env_steps, 0) * config.run.num_seeds / speed if speed else None
    return RunRow(
        name=paths.name,
        path=paths.folder,
        env=env,
        algorithm=algorithm,
        state=state,
        update=update,
        env_steps=env_steps,
        total_steps=total,
        last_return=last_return,
        steps_per_sec=speed,
        seconds_left=left,
        size=size,
        created=known.created if known else "",
        age=_age(state, known, written),
    )


def _age(state: State, known: Meta | None, written: float) -> float | None:
    if known is not None and state in ("finished", "interrupted", "failed"):
        with contextlib.suppress(ValueError):
            written = datetime.datetime.fromisoformat(known.updated).timestamp()
    return max(0.0, datetime.datetime.now(datetime.UTC).timestamp() - written) if written else None


def state_of(paths: RunPaths, known: Meta | None) -> State:
    """Return the state of a run; `known` is the state in its meta.json, None if that cannot be read."""
    if known is None:
        return "unknown"
    if known.state != "running":
        return cast(State, known.state)  # one of `meta.STATES`
    try:
        return "running" if lock.holding(paths).state == "held" else "crashed"
    except OSError:
        return "crashed"


def _measure(folder: Path) -> tuple[int, float]:
    """Return the bytes of all files, and the time at which the newest file of the run was written."""
    size, newest = 0, 0.0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):  # it may be gone by now
                status = os.lstat(os.path.join(place, name))
                size, newest = size + status.st_size, max(newest, status.st_mtime)
    return size, newest
