"""Change values of a run that has a state; where the state forbids it, name a command that works."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from hmx.config import fields
from hmx.config.coerce import show
from hmx.config.schema import Config
from hmx.errors import HmxError
from hmx.records.checkpoints import newest_intact, read_manifest
from hmx.records.frozen import run_id_of
from hmx.records.paths import RunPaths
from hmx.registry.changes import FixedValues, apply
from hmx.registry.check import known_problems
from hmx.registry.load import Loaded
from hmx.registry.user_code import ACCEPT_FLAG, Permissions
from hmx.runs import checkpoint
from hmx.runs.session import Session, open_session

_MOST_REPAIRS = 4  # values that are repaired one after the other


def changed(cfg: Config, changes: Mapping[str, object], paths: RunPaths, forked: Path | None = None) -> Loaded:
    """Return the configuration of a run with changes that its state allows, not checked yet.

    Args:
        cfg: of the run.
        changes: new values by dotted key; text is read as on the command line.
        paths: of the run.
        forked: the checkpoint from which a new run continues, see `apply`.

    Raises:
        HmxError: unknown keys, impossible values, or values that are fixed, each named, with a command that trains
            with the new values.
    """
    try:
        return apply(cfg, changes, forked is not None)
    except FixedValues as fixed:
        hint = other_run(cfg, fixed.values, paths, forked, fixed.may_fork)
        raise HmxError(fixed.message, hint) from None


def other_run(
    cfg: Config, values: Mapping[str, object], paths: RunPaths, forked: Path | None = None, may_fork: bool = False
) -> str:
    """Return the command that comes closest to continuing a run with values that its state does not allow.

    It is a fork if the whole state fits, otherwise a new run, from the network of `forked` or of the run if that fits.
    Values that no run can have are replaced by the nearest that work.

    Raises:
        HmxError: there is no such command, since the values are impossible.
    """
    wanted = dict(values)
    for _ in range(_MOST_REPAIRS):
        fixes = [problem.fixes[0] for problem in known_problems(fields.replace(cfg, wanted)) if problem.fixes]
        wanted |= dict(fixes[:1])
    session = open_session(fields.replace(cfg, wanted), paths)
    newest = forked or newest_intact(paths.checkpoints, run_id_of(paths))[0]
    differing = ["params/"] if newest is None else checkpoint.differences(read_manifest(newest), session.abstract)
    accept = [ACCEPT_FLAG] if Permissions.accept_change else []
    if may_fork and not differing:
        return shlex.join(
            ["hmx", "fork", str(paths.folder), *accept, *_sets(wanted), *_longer(session, newest, wanted)]
        )
    other_meaning = any(field.shape and key in wanted and _of_network(key) for key, field in fields.FIELDS.items())
    fits = not other_meaning and "run.init_from" not in wanted and not any(map(_is_learned, differing))
    network = ["--init-from", str(forked or paths.folder), *accept] if fits else []
    return shlex.join(["hmx", "train", "--config", str(paths.folder), *network, *_sets(wanted)])


def _is_learned(difference: str) -> bool:
    return difference.startswith(("params/", "actors/obs_stats", "learner/value_stats"))


def _of_network(key: str) -> bool:
    return key.startswith(("net.", "ppo."))


def _longer(session: Session, newest: Path | None, values: Mapping[str, object]) -> list[str]:
    """Return the option that lets a fork of a finished run train at all."""
    if newest is None or "run.total_steps" in values or int(newest.name) < session.sizes.num_updates:
        return []
    return ["--steps", str(2 * session.sizes.total_env_steps)]


def _sets(values: Mapping[str, object]) -> list[str]:
    return [word for key, value in values.items() for word in ("--set", f"{key}={show(value)}")]
