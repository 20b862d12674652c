"""Where the configurations of several sides differ, and what each difference means."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from hmx.config.coerce import show
from hmx.config.fields import FIELDS, get
from hmx.config.schema import Config
from hmx.config.textfile import quoted
from hmx.jobs.compare_checks import sizes
from hmx.jobs.compare_read import Side

# What tells runs apart but has no part in what they compute; seeds are listed with the sides.
_NO_PART = ("run.name", "run.root", "run.seed", "run.num_seeds", "run.wandb", "run.wandb_project")

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

    `values` are by side, as one would type them, "" where the side has no configuration; several runs of a side that do
    not agree are joined by " or ". `consequence` says what it comes to.
    """

    group: str
    key: str
    values: tuple[str, ...]
    consequence: str


def differences(sides: Sequence[Side]) -> list[Difference]:
    """The differences between configurations, those of the learner first."""
    known = [side for side in sides if side.configs]
    if len(known) < 2 and not any(len(side.configs) > 1 for side in known):
        return []
    found = [
        Difference(_group(field.section), key, values, _meaning(key))
        for key, field in FIELDS.items()
        if key not in _NO_PART and (values := _values(sides, key)) is not None
    ]
    order = ("algo", "net", "env", "reward", "run")
    found.sort(key=lambda row: order.index(row.key.partition(".")[0]))
    return [*found, *_sizes(sides)]


def _group(section: str) -> str:
    names = {"algo": "learning", "net": "network", "env": "environment", "reward": "reward", "run": "run"}
    return names.get(section, section)


def _meaning(key: str) -> str:
    field = FIELDS[key]
    return field.doc + (f" [{field.unit}]" if field.unit else "")


def _values(sides: Sequence[Side], key: str) -> tuple[str, ...] | None:
    """The values of each side; None where all agree."""
    by_side = [dict.fromkeys(_shown(config, key) for config in side.configs) for side in sides]
    if len({value for values in by_side for value in values}) < 2:
        return None
    return tuple(" or ".join(values) for values in by_side)


def _shown(config: Config, key: str) -> str:
    return quoted(show(get(config, key))) or '""'


def _sizes(sides: Sequence[Side]) -> list[Difference]:
    by_side: list[list[dict[str, Any]]] = [
        [found for config in side.configs if (found := sizes(config)) is not None] for side in sides
    ]
    rows = []
    for name, words in _SIZES.items():
        values = [dict.fromkeys(f"{found[name]:,}" for found in group) for group in by_side]
        if len({value for group in values for value in group}) > 1:
            rows.append(Difference("what follows", name, tuple(" or ".join(group) for group in values), words))
    return rows
