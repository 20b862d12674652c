"""The findings of `hmx report`: the facts of each run, and the curves of each configuration."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hmx.config.textfile import quoted
from hmx.jobs.evaluation import PolicyStats
from hmx.records.meta import Meta
from hmx.records.plain import JsonValue, plain
from hmx.render.blocks import Document
from hmx.reports.curves import AgentMetrics, Curve
from hmx.reports.doctor.job import HealthFindings

SCHEMA = 1


@dataclass(frozen=True)
class ResumeMark:
    """A resumption, or the fork that began a run: the environment steps per seed where it began, and its changes."""

    at: str
    update: int
    env_steps: int
    command: str
    changes: Mapping[str, tuple[str, str]]
    parent: Mapping[str, str] = field(default_factory=dict)  # of a fork: name and run_id of the other run
    rollback: str = ""  # of a fork that `run.on_finding` made: the finding

    @property
    def what(self) -> str:
        """What happened."""
        return f"forked from {quoted(self.parent.get('name', ''))}" if self.parent else "resumed"


@dataclass(frozen=True)
class Setting:
    """A value of the configuration; `default` is that of the schema."""

    key: str
    value: str
    default: str
    doc: str

    @property
    def changed(self) -> bool:
        """Whether the value differs from the default."""
        return self.value != self.default


@dataclass(frozen=True)
class PlayedStep:
    """A position, the policy's view of it, and the outcome of its action."""

    state: Mapping[str, JsonValue] = field(metadata={"json": False})  # as the environment describes it
    action: str  # its name, or its numbers
    probabilities: Mapping[str, float]  # of the actions, by name; empty for continuous actions
    value: float | None  # expected return
    reward: float
    terms: Mapping[str, float]  # those that are not 0


@dataclass(frozen=True)
class PlayedEpisode:
    """An episode of the trained agent; `place` is `best`, `median` or `worst` by return."""

    place: str
    total: float
    length: int
    ending: str
    steps: tuple[PlayedStep, ...]


@dataclass(frozen=True)
class PlayedEpisodes:
    """The episodes that a page shows, and the number of all episodes."""

    checkpoint: int
    seed: int
    greedy: bool
    played: int
    returns: tuple[float, ...]
    shown: tuple[PlayedEpisode, ...]
    evaluated: float | None = None  # mean return of the evaluation that these episodes repeat; None for new episodes

    @property
    def mean(self) -> float:
        """The mean return."""
        return math.fsum(self.returns) / len(self.returns)

    @property
    def repeats(self) -> bool:
        """Whether these are the episodes of the evaluation, up to rounding."""
        return self.evaluated is not None and math.isclose(self.mean, self.evaluated, rel_tol=1e-4, abs_tol=1e-4)


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """All facts about one run that do not need other runs."""

    name: str
    path: Path
    state: str
    meta: Meta | None = None
    env: str = ""
    algorithm: str = ""
    update: int = 0
    env_steps: int = 0
    total_steps: int | None = None
    minutes: float | None = None
    steps_per_sec: float | None = None
    resumes: tuple[ResumeMark, ...] = ()
    damaged: bool = False  # whether its run.toml or its meta.json cannot be read
    restorable: bool = True  # whether it has a checkpoint
    simulated: bool = False  # whether a checkpoint has the running episodes of a simulator
    settings: tuple[Setting, ...] = ()
    evaluation: tuple[PolicyStats, ...] = ()
    agents: tuple[AgentMetrics, ...] = field(default=(), metadata={"json": False})  # averaged
    traces: tuple[AgentMetrics, ...] = field(default=(), metadata={"json": False})  # by which its agents are recognised
    records: int = 0
    files: tuple[str, ...] = ()
    others: tuple[Document, ...] = field(default=(), metadata={"json": False})  # other reports, for the page
    episodes: PlayedEpisodes | None = None
    health: HealthFindings | None = None
    warnings: tuple[str, ...] = ()


def _drawn(curves: Mapping[str, Curve]) -> JsonValue:
    """Return the JSON of the curves of a group."""
    return plain({
        name: {
            "env_steps": curve.steps, "minutes": curve.time / 60, "mean": curve.values, "low": curve.low,
            "high": curve.high,
        }
        for name, curve in curves.items()
    })  # fmt: skip


@dataclass(frozen=True)
class ConfigGroup:
    """Runs of one configuration: all their agents make one curve per metric."""

    name: str
    runs: tuple[str, ...]
    seeds: int
    curves: Mapping[str, Curve] = field(metadata={"json": _drawn})  # means over its agents, by metric
    branch: float = 0.0  # environment steps at which its curves branch off those of another group


@dataclass(frozen=True)
class RunFindings:
    """The result of `hmx report`; `differences` maps each key that differs to its values per group."""

    runs: tuple[RunFacts, ...]
    groups: tuple[ConfigGroup, ...]
    differences: Mapping[str, tuple[str, ...]]
    schema: int = SCHEMA
    parents: tuple[ConfigGroup, ...] = field(default=(), metadata={"json": False})  # of forks, without own pages
