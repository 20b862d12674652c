"""Where the configurations of several sides differ, and what each difference means."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from hmx.config.coerce import show
from hmx.config.derive import problems
from hmx.config.fields import FIELDS, get
from hmx.config.meaning import ROWS, Row, meaning, row_of
from hmx.config.schema import Config
from hmx.config.textfile import quoted
from hmx.reports.compare.checks import sizes
from hmx.reports.compare.read import Side

# What tells runs apart but has no part in what they compute; seeds are listed with the sides.
_NO_PART = ("run.name", "run.root", "run.seed", "run.num_seeds", "run.wandb", "run.wandb_project")

_TABLES = {"algo": "learning", "net": "network", "env": "environment", "reward": "reward", "run": "run"}

_SIZES = {
    "batch_size": "environment steps per update",
    "minibatch_size": "agent steps per gradient step",
    "gradient_steps_per_update": "gradient steps per update",
    "num_updates": "updates of the whole run",
    "gradient_steps": "gradient steps of the whole run",
    "total_env_steps": "environment steps that really run, per seed",
}


@dataclasses.dataclass(frozen=True)
class Difference:
    """One key, or a size that follows from several.

    `values` are by side, as one would type them, "" where the side has no configuration; where runs of a side do not
    agree, their values are joined by " or ", or named by environment.
    """

    key: str
    values: tuple[str, ...]
    doc: str


@dataclasses.dataclass(frozen=True)
class Group:
    """Differences that belong together."""

    title: str
    row: str  # number of the documented difference between implementations of PPO; "" for everything else
    differences: tuple[Difference, ...]
    effects: tuple[str, ...] = ()  # of a row: what each side comes to, in words; "" where that is not known
    bug: bool = False  # whether a side reproduces a known bug


def differences(sides: Sequence[Side]) -> list[Group]:
    """The differences between configurations: the documented rows first, then by table, then what follows from all."""
    known = [side for side in sides if side.configs]
    if len(known) < 2 and not any(len(side.configs) > 1 for side in known):
        return []
    found: dict[str, list[Difference]] = {}
    for key in FIELDS:
        if key not in _NO_PART and (values := _values(sides, key)) is not None:
            found.setdefault(row_of(key) or key.partition(".")[0], []).append(Difference(key, values, _doc(key)))
    rows = [_row(sides, number, found.pop(number)) for number in ROWS if number in found]
    tables = [Group(title, "", tuple(found[name])) for name, title in _TABLES.items() if name in found]
    sizes_ = _sizes(sides)
    return [*rows, *tables, *([Group("what follows", "", tuple(sizes_))] if sizes_ else [])]


def _row(sides: Sequence[Side], number: str, found: Sequence[Difference]) -> Group:
    told = [_by_task(side, partial(_effect, number=number)) for side in sides]
    bug = any(row.bug for side in sides for config in side.configs for row in _rows(config) if row.id == number)
    return Group(ROWS[number][0], number, tuple(found), tuple(_text(side) for side in told), bug)


def _effect(config: Config, number: str) -> str | None:
    return next((row.meaning for row in _rows(config) if row.id == number), None)


def _rows(config: Config) -> tuple[Row, ...]:
    return () if problems(config) else meaning(config)


def _doc(key: str) -> str:
    field = FIELDS[key]
    return field.doc + (f" [{field.unit}]" if field.unit else "")


def _values(sides: Sequence[Side], key: str) -> tuple[str, ...] | None:
    """The values of each side; None where all agree."""
    return _told([_by_task(side, lambda config: _shown(config, key)) for side in sides])


_Values = Mapping[str, Mapping[str, None]]  # environment -> values, in order


def _by_task(side: Side, show_: Callable[[Config], str | None]) -> _Values:
    found: dict[str, dict[str, None]] = {}
    for config in side.configs:
        value = show_(config)
        if value is not None:
            found.setdefault(config.env.id, {})[value] = None
    return found


def _told(by_side: Sequence[_Values]) -> tuple[str, ...] | None:
    """One text per side; None where the sides agree on every environment that they share."""
    spread = any(len(values) > 1 for side in by_side for values in side.values())
    if not spread and not any(_apart(one, other) for one, other in itertools.combinations(by_side, 2)):
        return None
    return tuple(_text(side) for side in by_side)


def _apart(one: _Values, other: _Values) -> bool:
    shared = one.keys() & other.keys()
    if shared or not one or not other:
        return any(one[task].keys() != other[task].keys() for task in shared)
    return _union(one) != _union(other)


def _union(side: _Values) -> set[str]:
    return {value for values in side.values() for value in values}


def _text(side: _Values) -> str:
    if not side:
        return ""
    if len({tuple(values) for values in side.values()}) == 1:
        return " or ".join(next(iter(side.values())))
    if all(list(values) == [task] for task, values in side.items()):  # the environment itself
        return " or ".join(side)
    return ", ".join(f"{' or '.join(values)} ({task})" for task, values in side.items())


def _shown(config: Config, key: str) -> str:
    return quoted(show(get(config, key))) or '""'


def _sizes(sides: Sequence[Side]) -> list[Difference]:
    rows = []
    for name, words in _SIZES.items():
        values = _told([_by_task(side, partial(_size, name=name)) for side in sides])
        if values is not None:
            rows.append(Difference(name, values, words))
    return rows


def _size(config: Config, name: str) -> str | None:
    found = sizes(config)
    return None if found is None else f"{found[name]:,}"
