"""How often the workers of a run were killed without progress, so that a run that always kills its worker ends."""

from __future__ import annotations

from pathlib import Path

from hmx.errors import ExitCode, HmxError
from hmx.records import checkpoints
from hmx.records.artefact import read_json, write_sealed
from hmx.records.atomic import writing
from hmx.records.curves import read_newest
from hmx.records.paths import RunPaths

KILLS = "kills.json"  # in the folder of a run, until its next result
_SCHEMA = 1


def note_kill(paths: RunPaths) -> int:
    """Count one more killed worker of a run, and return their number since a worker got further than all before.

    The caller holds the lock of the run, and has found it stale.

    Raises:
        HmxError: the file cannot be written (exit code 3).
    """
    path = paths.folder / KILLS
    newest, _ = checkpoints.newest_intact(paths.checkpoints)
    update, count = max(int(newest.name) if newest else 0, read_newest(paths.metrics).get("update", 0)), 1
    try:
        before = read_json(path, _SCHEMA, "", "", sealed_from=_SCHEMA)
        if update <= before["update"]:
            update, count = int(before["update"]), int(before["count"]) + 1
    except (HmxError, ValueError, TypeError, KeyError):
        pass  # it is missing or damaged: count from here
    with writing("the run folder", path, ExitCode.ARTEFACT):
        write_sealed(path, {"schema": _SCHEMA, "update": update, "count": count})
    return count


def check_kills(count: int, most: int) -> None:
    """Refuse to train (exit code 4) a run that has killed `most` workers in a row; 0 for no bound."""
    if 0 < most <= count:
        message = f"killed its worker {most} times without progress"
        raise HmxError(message, "look for a lack of memory: dmesg", ExitCode.CHECK_FAILED)


def forget_kills(folder: Path) -> None:
    """Delete the count of a run that has a result."""
    (folder / KILLS).unlink(missing_ok=True)
