"""Change the configuration of a run that has a state, for `hmx resume`, `hmx fork` and `hmx evaluate`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

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


class FixedValues(HmxError):
    """Changes that the state of a run forbids.

    Attributes:
        values: all new values by dotted key.
        may_fork: whether a fork may have them, if its arrays keep their shapes.
    """

    def __init__(self, message: str, values: Mapping[str, object], may_fork: bool) -> None:
        super().__init__(message)
        self.values = values
        self.may_fork = may_fork


def apply(cfg: Config, changes: Mapping[str, object], forked: bool = False) -> Loaded:
    """Return the configuration with changes that the state of a run allows, not checked yet.

    Args:
        cfg: of the run.
        changes: new values by dotted key; text is read as on the command line.
        forked: whether a new run continues from a checkpoint. It has another name, and may have other options of the
            user's environment or algorithm.

    Raises:
        HmxError: unknown keys or impossible values.
        FixedValues: values that are fixed, each named.
    """
    origins = {key: fields.FIELDS[key].flag or "--set" if key in fields.FIELDS else "--set" for key in changes}
    values, problems = codec.resolve(changes, origins, text=True)
    if problems:
        raise error(problems)
    new = fields.replace(cfg, values)
    changed = codec.diff(cfg, new)
    fixed = [key for key in changed if not _may_change(key, forked)]
    if fixed:
        lines = [f"  {key}: {show(changed[key][0])} cannot become {show(changed[key][1])}" for key in fixed]
        may_fork = not forked and all(_may_change(key, fork=True) and key not in _FORKS_TO for key in fixed)
        head = "what a run's state depends on is fixed for its life:"
        raise FixedValues("\n".join([head, *lines]), {key: values[key] for key in changed}, may_fork)
    return Loaded(new, origins)


def _may_change(key: str, fork: bool) -> bool:
    if parts := fields.own_parts(key):
        return fork and parts[0] != "net"
    field = fields.FIELDS.get(key)
    return field is None or field.may_change or (fork and key in _FORKS_TO)
