"""Change the configuration of a run that has a state, for `hmx resume` and `hmx evaluate`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hmx.config import codec, fields
from hmx.config.coerce import show
from hmx.config.problem import Problem, error, split_set
from hmx.config.schema import Config
from hmx.errors import HmxError
from hmx.registry.load import Loaded

FIXED = ("algo.num_steps", "run.seed", "run.name", "run.root")
"""Keys that cannot change, in addition to shape keys: they define the meaning of counters and the folder of the run."""


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


def apply(cfg: Config, changes: Mapping[str, object]) -> Loaded:
    """Return the configuration with changes that the state of a run allows, not checked yet.

    Text is read as on the command line.

    Raises:
        HmxError: unknown keys, impossible values, or fields that are fixed, each named.
    """
    origins = {key: fields.FIELDS[key].flag or "--set" if key in fields.FIELDS else "--set" for key in changes}
    values, problems = codec.resolve(changes, origins, text=True)
    if problems:
        raise error(problems)
    new = fields.replace(cfg, values)
    shaping = {key for key, field in fields.FIELDS.items() if field.shape}.union(FIXED)
    fixed = {key: pair for key, pair in codec.diff(cfg, new).items() if key in shaping or fields.own_parts(key)}
    if fixed:
        lines = [f"  {key}: {show(before)} cannot become {show(after)}" for key, (before, after) in fixed.items()]
        hint = "start a new run with these values: hmx train --config RUN/run.toml --name NEW " + " ".join(
            f"--set {key}={show(after)}" for key, (_, after) in fixed.items()
        )
        raise HmxError("\n".join(["what a run's state depends on is fixed for its life:", *lines]), hint)
    return Loaded(new, origins)
