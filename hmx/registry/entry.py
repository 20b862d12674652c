"""The entry of an environment of hmx: options, metrics, checks and reports derive from it. No JAX."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:  # the schema is made of entries
    from hmx.config.problem import Problem
    from hmx.config.schema import Config, EnvConfig, RewardWeights

Feature = Literal["board", "cells"]
"""What only some environments have: a board that `hmx watch` draws, a person plays and scenarios describe; and board
cells that a network reads one by one."""


class EnvEntry(NamedTuple):
    """The facts about an environment, or about all of an extra (`gymnax/`)."""

    id: str
    make: str  # `module:function` that builds it, and imports JAX
    arguments: Callable[[EnvConfig, RewardWeights], tuple[Any, ...]] = lambda cfg, _: (cfg.id, cfg.max_steps)
    """Of that function; `max_steps` is at most `limit`."""
    package: str = ""  # that an extra installs
    options: Mapping[str, Mapping[str, tuple[Any, Any]]] = MappingProxyType({})
    """Class of the schema -> name of an option of it -> type, or its name in the schema, and `opt(...)`."""
    metrics: tuple[tuple[str, str, str, str, str], ...] = ()  # that only such environments report, as rows of the table
    groups: Mapping[str, str] = MappingProxyType({})  # of these metrics, what a group is that others do not have
    limit: int = 0  # step limit of the published task, which the configuration can only lower; 0 for none
    num_agents: int = 1  # 0 if the configuration chooses
    endless: bool = False  # whether episodes end only by truncation
    masked: bool = False  # whether some actions are illegal in some states
    small: bool = False  # whether few environments and small updates learn it fastest
    steady_terms: tuple[str, ...] = ()  # reward terms that every step pays equally, such as a cost of time
    simulated: bool = False  # whether worker processes step it, and not the compiled program of a run
    defaults: Mapping[str, Any] = MappingProxyType({})  # by dotted key, in place of those of the schema
    features: Callable[[EnvConfig], frozenset[Feature]] = lambda cfg: frozenset()
    warn: Callable[[Config], Iterator[Problem]] = lambda cfg: iter(())
    """What will run, but perhaps not as intended; the configuration has no problems."""

    def step_limit(self, max_steps: int) -> int:
        """Return the steps after which an episode is truncated, given `env.max_steps`; 0 for never."""
        return min(max_steps or self.limit, self.limit) if self.limit else max_steps
