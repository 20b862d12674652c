"""Change values of a run that has a state; where the state forbids it, name a command that works."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from pathlib import Path

from hmx.config import codec, fields
from hmx.config.coerce import show
from hmx.config.problem import error
from hmx.errors import HmxError
from hmx.records.checkpoints import newest_intact, read_manifest
from hmx.registry.check import known_problems
from hmx.registry.load import Loaded
from hmx.registry.trust import ACCEPT_FLAG, Permissions
from hmx.runs import checkpoint
from hmx.runs.restoring import Run
from hmx.runs.session import Session, open_session

_FORKS_TO = ("run.name", "run.root")  # where a fork is written
_MOST_REPAIRS = 4  # values that are repaired one after the other


def changed(run: Run, changes: Mapping[str, object], forked: Path | None = None, free: Collection[str] = ()) -> Loaded:
    """Return the task of a run with changes that its state allows, not checked yet.

    Args:
        run: whose configuration is changed.
        changes: new values by dotted key; text is read as on the command line.
        forked: the checkpoint from which a new run continues. It has another name, and may have other options of the
            user's environment or algorithm.
        free: keys that may change although the state depends on them, since the caller uses both values.

    Raises:
        HmxError: unknown keys, impossible values, or values that are fixed, each named, with a command that trains
            with the new values.
    """
    origins = {key: fields.FIELDS[key].flag or "--set" if key in fields.FIELDS else "--set" for key in changes}
    values, problems = codec.resolve(changes, origins, text=True)
    if problems:
        raise error(problems)
    new = run.changed(values).cfg
    differing = codec.diff(run.cfg, new)
    fixed = [key for key in differing if key not in free and not _may_change(key, forked is not None)]
    if fixed:
        lines = [f"  {key}: {show(differing[key][0])} cannot become {show(differing[key][1])}" for key in fixed]
        may_fork = forked is None and all(_may_change(key, fork=True) and key not in _FORKS_TO for key in fixed)
        hint = other_run(run, {key: values[key] for key in differing}, forked, may_fork)
        raise HmxError("\n".join(["what a run's state depends on is fixed for its life:", *lines]), hint)
    return Loaded(new, origins)


def _may_change(key: str, fork: bool) -> bool:
    if parts := fields.own_parts(key):
        return fork and parts[0] != "net"
    field = fields.FIELDS.get(key)
    return field is None or field.may_change or (fork and key in _FORKS_TO)


def other_run(run: Run, values: Mapping[str, object], forked: Path | None = None, may_fork: bool = False) -> str:
    """Return the command that comes closest to continuing a run with values that its state does not allow.

    It is a fork if the whole state fits, otherwise a new run, from the network of `forked` or of the run if that fits.
    Values that no run can have are replaced by the nearest that work.

    Raises:
        HmxError: there is no such command, since the values are impossible.
    """
    wanted = dict(values)
    for _ in range(_MOST_REPAIRS):
        fixes = [problem.fixes[0] for problem in known_problems(run.changed(wanted).cfg) if problem.fixes]
        wanted |= dict(fixes[:1])
    session = open_session(run.changed(wanted).cfg, run.paths)
    newest = forked or newest_intact(run.checkpoints, run.run_id)[0]
    differing = ["params/"] if newest is None else checkpoint.differences(read_manifest(newest), session.abstract)
    accept = [ACCEPT_FLAG] if Permissions.accept_change else []
    if may_fork and not differing:
        return shlex.join(["hmx", "fork", str(run.folder), *accept, *_sets(wanted), *_longer(session, newest, wanted)])
    of_network = (key for key in fields.FIELDS.keys() & wanted if key.startswith(("net.", "ppo.")))
    other_meaning = any(fields.FIELDS[key].shape for key in of_network)
    learned = any(leaf.startswith(("params/", "actors/obs_stats", "learner/value_stats")) for leaf in differing)
    fits = not other_meaning and "run.init_from" not in wanted and not learned
    network = ["--init-from", str(forked or run.folder), *accept] if fits else []
    return shlex.join(["hmx", "train", "--config", str(run.folder), *network, *_sets(wanted)])


def _longer(session: Session, newest: Path | None, values: Mapping[str, object]) -> list[str]:
    """Return the option that lets a fork of a finished run train at all."""
    if newest is None or "run.total_steps" in values or int(newest.name) < session.sizes.num_updates:
        return []
    return ["--steps", str(2 * session.sizes.total_env_steps)]


def _sets(values: Mapping[str, object]) -> list[str]:
    return [word for key, value in values.items() for word in ("--set", f"{key}={show(value)}")]
