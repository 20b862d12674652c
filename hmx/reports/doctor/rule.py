"""A rule of `hmx doctor`: what it needs, what it looks for, and what it says."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from hmx.config.coerce import show
from hmx.config.fields import FIELDS, values_of
from hmx.registry.algorithms import find_algorithm
from hmx.registry.environments import step_limit
from hmx.reports.doctor.history import History

Severity = Literal["warning", "note"]
Verb = Literal["lower", "raise", "set", "check", "run"]
Remedy = str | tuple[Verb, str] | tuple[Verb, str, str]
"""Advice for every run; or what to do with an option or a command, and what follows it."""


@dataclass(frozen=True)
class Rule:
    """A kind of problem that metrics can show."""

    name: str  # for `--fail-on`
    needs: tuple[str, ...]  # metrics, or groups such as `reward/`, without which it is not checked
    check: Callable[[History], str]  # returns the evidence; "" for none
    title: str  # the problem, as a sentence without its full stop
    remedies: tuple[Remedy, ...]  # what to try, as clauses; those that a run cannot follow are left out
    patience: float = 0.05  # share of the run for which the evidence must last
    updates: int = 6  # least number of updates for which it must last
    note: Callable[[History], bool] = lambda run: False  # whether it may be intended: never shown during training
    so_far: bool = False  # whether it claims "never so far", which a later update can disprove
    instead: tuple[str, ...] = ()  # metrics that suffice in place of `needs`
    rollback: tuple[tuple[str, float], ...] = ()
    """Of a rule that knows a dead or diverging run: options that may prevent it with factors, the best first."""
    configured: bool = False  # whether it also needs the configuration, so that logs of other programs are not checked

    def changes(self, values: Mapping[str, object]) -> dict[str, float]:
        """Return the first option of `rollback` that a run has and that its factor changes, with its new value.

        `values` are those of its configuration; user code may give the options of an algorithm another meaning.
        """
        name, env_id = str(values["algo.name"]), str(values["env.id"])
        for key, factor in () if find_algorithm(name).own else self.rollback:
            value = values[key]
            if isinstance(value, float) and FIELDS[key].applies_to(name, env_id) and value * factor != value:
                return {key: value * factor}
        return {}

    def missing(self, run: History) -> str:
        """Return the metrics or the configuration that the rule lacks; "" if it can be checked."""
        if self.configured and run.config is None:
            return "the configuration"
        if self.instead and all(map(run.has, self.instead)):
            return ""
        return " and ".join(name for name in self.needs if not run.has(name))

    def lasting(self, total: int) -> int:
        """Return the number of updates for which the evidence must last in a run of `total` updates."""
        return max(self.updates, math.ceil(self.patience * total))

    def remedy(self, run: History) -> str:
        """Return the advice that applies to a run as a sentence."""
        fitting = [one for one in self.remedies if isinstance(one, str) or run.config is None or _applies(run, *one)]
        *first, last = [one if isinstance(one, str) else f"{one[0]} {''.join(one[1:])}" for one in fitting]
        text = f"{', '.join(first)}, or {last}" if first else last
        return f"{text[:1].upper()}{text[1:]}."


def _applies(run: History, verb: Verb, key: str, more: str = "") -> bool:
    """Return whether a run has an option or a gradient report, and can still change the option as a remedy says."""
    cfg = run.cfg
    if verb == "run":
        return bool(find_algorithm(cfg.algo.name).reporter)  # the loss of an own algorithm is not known
    if not FIELDS[key].applies_to(cfg.algo.name, cfg.env.id):
        return False
    value: Any = values_of(cfg)[key]
    if verb == "set":
        return f"={show(value)}" != more if more else not value
    if key == "env.max_steps":  # raised where it is the limit that episodes reach
        longer = step_limit(replace(cfg.env, max_steps=value + 1)) > value
        return bool(longer and 0 < value <= run["train/mean_episode_length"].last)
    return verb != "lower" or bool(value > (FIELDS[key].ge or 0))
