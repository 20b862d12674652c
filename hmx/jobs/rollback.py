"""`run.on_finding = rollback`: continue a run that a finding ended from its last healthy checkpoint, as a fork."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from hmx.errors import HmxError
from hmx.jobs import fork
from hmx.jobs.requests import ForkRequest
from hmx.jobs.resume import Continued
from hmx.jobs.train import TrainResult
from hmx.records import frozen
from hmx.records.meta import ROLLBACK
from hmx.records.paths import RunPaths
from hmx.runs.sinks import Ending, Sink

_BRANCH = "-rollback-"


def rolled_back(
    result: TrainResult, sinks: Callable[[], Sequence[Sink]], command_line: Sequence[str] = ()
) -> TrainResult:
    """Return the result of the last branch of a run, after as many rollbacks as its findings and options ask for.

    Each branch is a fork from the last healthy checkpoint, with one changed option. Without a checkpoint or an option
    to change, the result stays, and its finding says why.

    Args:
        result: of a run that has ended.
        sinks: makes the receivers of the records of a branch.
        command_line: kept in meta.json of the branches.

    Raises:
        HmxError: a branch failed, as `hmx.jobs.fork.fork`.
        StopNow: a second signal; the last complete checkpoint is intact.
    """
    branches = [result.run]
    while (finding := result.finding) is not None:
        paths = RunPaths(result.run.parent, result.run.name)
        run = frozen.read_config(paths).run
        if run.on_finding != "rollback":
            break
        try:
            opened = _open(paths, finding, run.max_rollbacks)
        except HmxError as problem:
            refused = dataclasses.replace(finding, refused=problem.message)
            result = dataclasses.replace(result, finding=refused)
            break
        why = f"{ROLLBACK} from update {result.updates:,} to {finding.healthy:,} after: {finding.text}"
        result = fork.start(opened, paths, sinks=sinks(), command_line=command_line, notes=(why,))
        branches.append(result.run)
    return dataclasses.replace(result, branches=tuple(branches) if branches[1:] else ())


def _open(paths: RunPaths, finding: Ending, most: int) -> Continued:
    """Open the next branch of a run; an HmxError says why there is none."""
    done = sum(note.startswith(ROLLBACK) for entry in fork.resumes_of(paths) for note in entry.notes)
    if done >= most:
        raise HmxError(f"run.max_rollbacks = {most} is reached")
    if finding.healthy is None:
        raise HmxError("no checkpoint from before it is kept")
    if not finding.changes:
        raise HmxError("the run has no option that may prevent it")
    name = f"{paths.name.rsplit(_BRANCH, 1)[0]}{_BRANCH}{done + 1}"
    branch = RunPaths(paths.root, name)
    if branch.exists():
        raise HmxError(f"its branch exists, and hmx resume {branch.argument} continues it")
    return fork.open_at(paths, ForkRequest(at=finding.healthy, name=name), finding.changes)
