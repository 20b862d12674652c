"""The last healthy checkpoint of a run that a finding of `hmx doctor` ended, and how to continue from it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from hmx.config.coerce import show
from hmx.config.schema import RunConfig
from hmx.errors import ExitCode, HmxError
from hmx.records import checkpoints
from hmx.records.curves import RETURN, Records
from hmx.records.paths import RunPaths
from hmx.runs.cluster.group import Group
from hmx.runs.sinks import Ending

WINDOW = 8  # updates that rules of hmx doctor look back, and that show whether a checkpoint is healthy
_LOSS = 0.2  # share of the range of returns that a healthy checkpoint may lie below the best one


def check_alone(run: RunConfig, group: Group) -> None:
    """Refuse `run.on_finding` in a run of several processes, which cannot decide together to end."""
    if group.count > 1 and run.on_finding != "warn":
        raise HmxError(f"run.on_finding = {run.on_finding} needs a single process", "set run.on_finding=warn")


def last_healthy(paths: RunPaths, before: int) -> int | None:
    """Return the update of the newest checkpoint up to update `before` whose returns are near the best one's.

    The lower of the mean returns shortly before and shortly after a checkpoint counts, since the policy may have
    collapsed some updates before a rule found evidence. None if no checkpoint is that old.
    """
    kept = [int(path.name) for path in checkpoints.complete(paths.checkpoints) if int(path.name) <= before]
    returns = _returns(paths)
    levels = {update: level for update in kept if (level := _level(returns, update)) is not None}
    if not levels:
        return max(kept, default=None)
    low = min(_mean(list(returns.values())[i : i + WINDOW]) for i in range(max(len(returns) - WINDOW, 0) + 1))
    enough = max(levels.values()) - _LOSS * (max(levels.values()) - low)
    return max(update for update, level in levels.items() if level >= enough)


def _returns(paths: RunPaths) -> dict[int, float]:
    """Return the mean episode returns by update."""
    found = {}
    for _, record in Records(paths.metrics):
        value, update = record.get(RETURN), record.get("update")
        if isinstance(value, int | float) and isinstance(update, int):
            found[update] = float(value)
    return found


def _level(returns: Mapping[int, float], update: int) -> float | None:
    before = [value for at, value in returns.items() if at <= update][-WINDOW:]
    after = [value for at, value in returns.items() if at > update][:WINDOW]
    return min(map(_mean, filter(None, (before, after))), default=None)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def failure(paths: RunPaths, ending: Ending, update: int) -> HmxError:
    """Return the error of a run that a finding ended; its hint has the commands that continue the run."""
    ways = [f"hmx doctor {paths.argument} explains it", f"hmx resume {paths.argument} --on-finding warn continues it"]
    if ending.healthy is not None:
        at, changes = ["--at", str(ending.healthy)], ending.changes.items()
        more = shlex.join([*at, *(f"--set={key}={show(value)}" for key, value in changes)])
        ways.append(f"hmx fork {paths.argument} {more} goes back to a healthy checkpoint")
    message = f"{paths.name} was stopped after update {update:,}: {ending.text}"
    message += f"; no rollback: {ending.refused}" if ending.refused else ""
    return HmxError(message, "; ".join(ways), ExitCode.CHECK_FAILED)
