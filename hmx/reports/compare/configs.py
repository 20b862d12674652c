"""Where the configurations of the sides differ, and what each difference means."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from hmx.config.coerce import show
from hmx.config.derive import Derived, derive
from hmx.config.fields import FIELDS, OWN_SECTIONS, get, keys_of, own_parts
from hmx.config.meaning import ASPECTS, Aspect, aspect_of, meaning
from hmx.config.rules import problems
from hmx.config.schema import Config
from hmx.config.textfile import quoted
from hmx.config.user_code import WHAT
from hmx.reports.compare.findings import Difference, DifferenceGroup
from hmx.reports.compare.read import Side

# What tells runs apart without a part in what they compute; seeds are listed with the sides.
_NO_PART = ("run.name", "run.root", "run.seed", "run.num_seeds", "run.wandb", "run.wandb_project", "run.tensorboard")

# In the order of the report.
_TITLES = {
    "algo": "learning", "ppo": "PPO", "gumbel": "search", "dqn": "Q-learning", "replay": "replay buffer",
    "score": "scoring", "net": "network", "env": "environment", "reward": "reward", "run": "run",
}  # fmt: skip

_SIZES = {
    "batch_size": "environment steps per update",
    "minibatch_size": "agent steps per gradient step",
    "gradient_steps_per_update": "gradient steps per update",
    "num_updates": "updates of the whole run",
    "gradient_steps": "gradient steps of the whole run",
    "total_env_steps": "environment steps of the whole run, per seed",
}

_Values = Mapping[str, Mapping[str, None]]  # environment -> values, in order


def differences(sides: Sequence[Side]) -> list[DifferenceGroup]:
    """Return the differences: the documented ones first, then by section, then the sizes that follow."""
    known = [side for side in sides if side.configs]
    if len(known) < 2 and not any(len(side.configs) > 1 for side in known):
        return []
    found: dict[str, list[Difference]] = {}
    for key in keys_of(config for side in sides for config in side.configs):
        values = None if key in _NO_PART else _compared([_by_task(side, partial(_shown, key=key)) for side in sides])
        if values is not None:
            found.setdefault(aspect_of(key) or key.partition(".")[0], []).append(Difference(key, values, _doc(key)))
    rows = [_row(sides, number, found[number]) for number in ASPECTS if number in found]
    tables = [DifferenceGroup(title, "", tuple(found[name])) for name, title in _TITLES.items() if name in found]
    sizes = tuple(_sizes(sides))
    return [*rows, *tables, *([DifferenceGroup("resulting sizes", "", sizes)] if sizes else [])]


def derived(config: Config | None) -> Derived | None:
    """Return the sizes that follow from a configuration; None without one or for one that cannot run."""
    return None if config is None or problems(config) else derive(config)


def _row(sides: Sequence[Side], number: str, found: Sequence[Difference]) -> DifferenceGroup:
    def effect(config: Config) -> str | None:
        return next((row.meaning for row in _rows(config) if row.id == number), None)

    effects = [_by_task(side, effect) for side in sides]
    bug = any(row.bug for side in sides for config in side.configs for row in _rows(config) if row.id == number)
    return DifferenceGroup(ASPECTS[number][0], number, tuple(found), tuple(_text(side) for side in effects), bug)


def _rows(config: Config) -> tuple[Aspect, ...]:
    return () if problems(config) else meaning(config)


def _doc(key: str) -> str:
    field = FIELDS.get(key)
    if field is None:
        parts = own_parts(key)
        return f"option of the {WHAT[OWN_SECTIONS[parts[0]]]}" if parts else "of the environment's file"
    return field.described


def _shown(config: Config, key: str) -> str | None:
    """Return a value as one would type it; None where the algorithm or the environment does not read it."""
    field = FIELDS.get(key)
    if field is None:
        return None if get(config, key) is None else quoted(show(get(config, key)))
    return (quoted(show(get(config, key))) or '""') if field.applies_to(config) else None


def _sizes(sides: Sequence[Side]) -> list[Difference]:
    rows = []
    for name, doc in _SIZES.items():
        values = _compared([_by_task(side, partial(_size, name=name)) for side in sides])
        if values is not None:
            rows.append(Difference(name, values, doc))
    return rows


def _size(config: Config, name: str) -> str | None:
    found = derived(config)
    return None if found is None else f"{getattr(found, name):,}"


def _by_task(side: Side, value_of: Callable[[Config], str | None]) -> _Values:
    found: dict[str, dict[str, None]] = {}
    for config in side.configs:
        value = value_of(config)
        if value is not None:
            found.setdefault(config.env.id, {})[value] = None
    return found


def _compared(by_side: Sequence[_Values]) -> tuple[str, ...] | None:
    """Return one text per side; None where the sides agree on every environment that they share."""
    disagree = any(len(values) > 1 for side in by_side for values in side.values())
    if not disagree and not any(_differ(one, other) for one, other in itertools.combinations(by_side, 2)):
        return None
    return tuple(_text(side) for side in by_side)


def _differ(one: _Values, other: _Values) -> bool:
    shared = one.keys() & other.keys()
    if shared or not one or not other:
        return any(one[task].keys() != other[task].keys() for task in shared)
    first, second = ({value for values in side.values() for value in values} for side in (one, other))
    return first != second


def _text(side: _Values) -> str:
    if len({tuple(values) for values in side.values()}) <= 1:
        return " or ".join(next(iter(side.values()), ()))
    if all(list(values) == [task] for task, values in side.items()):  # the environment itself
        return " or ".join(side)
    return ", ".join(f"{' or '.join(values)} ({task})" for task, values in side.items())
