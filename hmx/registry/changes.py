"""Change the configuration of a run that has a state, for `hmx resume`, `hmx fork` and `hmx evaluate`."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hmx.config import codec, fields
from hmx.config.coerce import show
from hmx.config.problem import Problem, error, split_set
from hmx.config.schema import Config
from hmx.errors import HmxError
from hmx.registry.load import Loaded

_FORKS_TO = ("run.name", "run.root")  # where a fork is written


def parse(sets: Iterable[str]) -> dict[str, str]:
    """Return texts of the form `section.key=value` by key; the last one of a key wins.

    Raises:
        HmxError: a text without a key or `=`.
    """
    changes: dict[str, str] = {}
    for found in map(split_set, sets):
        if isinstance(found, Problem):
            raise error([found])
        changes |= found
    return changes


def apply(cfg: Config, changes: Mapping[str, object], folder: Path, forked: Path | None = None) -> Loaded:
    """Return the configuration with changes that the state of a run allows, not checked yet.

    Args:
        cfg: of the run.
        changes: new values by dotted key; text is read as on the command line.
        folder: of the run, for hints.
        forked: the checkpoint from which a new run continues. It has another name, and may have other options of the
            user's environment or algorithm.

    Raises:
        HmxError: unknown keys, impossible values, or fields that are fixed, each named.
    """
    origins = {key: fields.FIELDS[key].flag or "--set" if key in fields.FIELDS else "--set" for key in changes}
    values, problems = codec.resolve(changes, origins, text=True)
    if problems:
        raise error(problems)
    new = fields.replace(cfg, values)
    changed = codec.diff(cfg, new)
    fixed = [key for key in changed if not _may_change(key, forked is not None)]
    if fixed:
        lines = [f"  {key}: {show(changed[key][0])} cannot become {show(changed[key][1])}" for key in fixed]
        if forked is None and all(_may_change(key, fork=True) and key not in _FORKS_TO for key in fixed):
            hint = shlex.join(["hmx", "fork", str(folder), *_sets(values)])
        else:
            hint = start_command(folder, forked or folder, values)
        raise HmxError("\n".join(["what a run's state depends on is fixed for its life:", *lines]), hint)
    return Loaded(new, origins)


def _may_change(key: str, fork: bool) -> bool:
    if parts := fields.own_parts(key):
        return fork and parts[0] != "net"
    field = fields.FIELDS.get(key)
    return field is None or field.may_change or (fork and key in _FORKS_TO)


def start_command(folder: Path, source: Path, values: Mapping[str, Any]) -> str:
    """Return the command that comes closest to continuing a run with values that its state does not allow.

    It starts a new run from the network of `source`, the run in `folder` or a checkpoint of it, unless the network
    would be another one.
    """
    shapes = {key for key, field in fields.FIELDS.items() if field.shape and key.startswith(("net.", "ppo."))}
    other_network = any(key in shapes or (fields.own_parts(key) or ("",))[0] == "net" for key in values)
    network = [] if other_network or "run.init_from" in values else ["--init-from", str(source)]
    return shlex.join(["hmx", "train", "--config", str(folder), *network, *_sets(values)])


def _sets(values: Mapping[str, Any]) -> list[str]:
    return [word for key, value in values.items() for word in ("--set", f"{key}={show(value)}")]
