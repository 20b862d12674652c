"""Differences between the configurations of the sides."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from hmx.config.coerce import show
from hmx.config.fields import FIELDS, OWN_SECTIONS, get, keys_of, own_parts
from hmx.config.schema import Config
from hmx.config.textfile import quoted
from hmx.registry.algorithms import find_algorithm
from hmx.registry.check import known_problems
from hmx.registry.derive import derive
from hmx.registry.environments import known_sizes
from hmx.registry.user_code import WHAT
from hmx.reports.compare.findings import Difference, DifferenceGroup
from hmx.reports.compare.sides import Member, Side

# Keys that identify runs and do not affect their results; seeds are listed with the sides.
NO_PART = ("run.name", "run.root", "run.seed", "run.num_seeds", "run.wandb", "run.wandb_project", "run.tensorboard",
           "run.sink")  # fmt: skip

# In the order of the report; any other section comes after them, under its own name.
_TITLES = {
    "algo": "learning", "ppo": "PPO", "gumbel": "search", "dqn": "Q-learning", "replay": "replay buffer",
    "score": "scoring", "net": "network", "env": "environment", "starts": "later starts", "reward": "reward",
    "run": "run",
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


def resolved(member: Member, config: Config) -> Member:
    """Return a member with its configuration and what a comparison reads from it; only values if it cannot run."""
    values = {key: text for key in keys_of([config]) if (text := _shown(config, key)) is not None}
    if known_problems(config):
        return replace(member, config=config, values=values)
    sizes = derive(config)
    aspects = find_algorithm(config.algo.name).aspects(config, known_sizes(config.env))
    values |= {name: f"{getattr(sizes, name):,}" for name in _SIZES}
    values |= {aspect.id: aspect.meaning for aspect in aspects}
    return replace(member, config=config, values=values, sizes=sizes, aspects=aspects)


def differences(sides: Sequence[Side]) -> list[DifferenceGroup]:
    """Return the differences: the documented ones first, then by section, then the derived sizes."""
    known = [side for side in sides if side.configs]
    if len(known) < 2 and not any(len(side.configs) > 1 for side in known):
        return []
    aspects = [aspect for side in sides for member in side.members for aspect in member.aspects]
    described = {aspect.id: aspect for aspect in aspects}
    aspect_of = {key: aspect.id for aspect in described.values() for key in aspect.values}
    found: dict[str, list[Difference]] = {}
    for key in keys_of(config for side in sides for config in side.configs):
        if key not in NO_PART:
            section = aspect_of.get(key) or key.partition(".")[0]
            found.setdefault(section, []).extend(_difference(sides, key, _doc(key)))
    documented = [
        DifferenceGroup(
            aspect.title, number, tuple(found[number]), tuple(_text(_by_task(side, number)) for side in sides),
            any(one.bug for one in aspects if one.id == number), aspect.impact, aspect.confidence,
        )
        for number, aspect in described.items()
        if found.get(number)
    ]  # fmt: skip
    found["resulting sizes"] = [row for name, doc in _SIZES.items() for row in _difference(sides, name, doc)]
    sections = [name for name in dict.fromkeys([*_TITLES, *found]) if name not in described and found.get(name)]
    return [*documented, *(DifferenceGroup(_TITLES.get(name, name), "", tuple(found[name])) for name in sections)]


def _doc(key: str) -> str:
    field = FIELDS.get(key)
    if field is None:
        parts = own_parts(key)
        return f"option of the {WHAT[OWN_SECTIONS[parts[0]]]}" if parts else "of the environment's file"
    return field.described


def _shown(config: Config, key: str) -> str | None:
    """Return a value as the user would type it; None if the algorithm or the environment does not read it."""
    field = FIELDS.get(key)
    if field is None:
        return None if get(config, key) is None else quoted(show(get(config, key)))
    applies = field.applies_to(config.algo.name, config.env.id)
    return (quoted(show(get(config, key))) or '""') if applies else None


def _by_task(side: Side, key: str) -> _Values:
    by_task: dict[str, dict[str, None]] = {}
    for member in side.members:
        if member.config is not None and key in member.values:
            by_task.setdefault(member.config.env.id, {})[member.values[key]] = None
    return by_task


def _difference(sides: Sequence[Side], key: str, doc: str) -> Iterator[Difference]:
    """Yield the value of each side, unless the sides agree on every environment that they share."""
    shown = [_by_task(side, key) for side in sides]
    disagree = any(len(values) > 1 for side in shown for values in side.values())
    if disagree or any(_differ(one, other) for one, other in itertools.combinations(shown, 2)):
        yield Difference(key, tuple(map(_text, shown)), doc)


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
