"""The findings of `hmx study report` as records; its JSON has the same keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from hmx.records.plain import JsonValue, ShortRepr
from hmx.render.blocks import Cell
from hmx.render.numbers import num, p_value_text, signed_estimate
from hmx.render.quantities import UNKNOWN
from hmx.reports.compare.findings import CompareFindings, Pair
from hmx.stats.estimate import Estimate
from hmx.study.records import StudySettings
from hmx.study.state import Advice, Standing

SCHEMA = 1
Judgement = Literal["matters", "matters little", "cannot tell", "too few trials"]


@dataclass(frozen=True, kw_only=True)
class TrialFacts:
    """A trial that counts, with its newest result."""

    trial: int
    label: str  # name of its configuration, in a study of several
    values: Mapping[str, JsonValue]  # of every key of the space
    rungs: tuple[float | None, ...]  # the objective at each rung that it reached
    env_steps: int = num("environment steps per seed until then", "steps", column="steps", rank=2)
    cpu_seconds: float | None = num(
        "CPU time of its training, all seeds together; with compiling, if its worker had no program for it yet",
        "seconds", "down", "CPU time", rank=1,
    )  # fmt: skip
    failed: str  # why it cannot continue
    front: bool = False  # whether no other trial is at least as good for less CPU time

    @property
    def objective(self) -> float | None:
        """The objective at its highest rung."""
        return self.rungs[-1] if self.rungs else None

    @property
    def rung(self) -> int | None:
        """The highest rung that it reached."""
        return len(self.rungs) - 1 if self.rungs else None

    def standing(self, higher_is_better: bool) -> tuple[int, bool, float]:
        """Return a key that is larger for better trials: a higher rung first, then a known and better objective."""
        value = self.objective
        return len(self.rungs), value is not None, (value or 0.0) * (1.0 if higher_is_better else -1.0)


@dataclass(frozen=True, kw_only=True)
class Finalist:
    """One of the best trials: its figure in the search, and on seeds that the search has not seen."""

    trial: int
    name: str
    folder: str  # of the trial
    tuned: Estimate | None = num("objective in the search that chose it", "objective", column="tuned")
    tuned_seeds: int
    confirmed: Estimate | None = num("objective on fresh seeds", "objective", column="confirmed")
    confirmed_seeds: int
    overstated: Estimate | None = num(
        "how much worse it is on fresh seeds than in the search", "objective", column="overstated by", rank=1,
        show=signed_estimate,
    )  # fmt: skip
    cpu_seconds: float | None = num("CPU time of its training in the search", "seconds", "down", "CPU time", rank=2)
    confirmed_cpu_seconds: float | None = num(
        "CPU time of its training on fresh seeds", "seconds", "down", "CPU time, fresh seeds", rank=3
    )


def share_text(share: Estimate) -> str:
    """Return a share with its interval in percent."""
    ends = "" if share.low is None or share.high is None else f" [{share.low:.0%}, {share.high:.0%}]"
    return f"{share.value:.0%}{ends}"


def _share(share: Estimate | None) -> Cell:
    return Cell(UNKNOWN) if share is None else Cell(share_text(share), share.value, bar=share.value)


@dataclass(frozen=True, kw_only=True)
class OptionImportance:
    """How much of the differences between trials an option explains alone."""

    key: str
    share: Estimate | None = num(
        "share of the variance of the ranks of the results that the option explains alone", "share",
        column="share of the variance", show=_share,
    )  # fmt: skip
    p_value: float | None = num(
        "probability that the largest share of options without effect is as large", column="p-value", rank=1,
        show=p_value_text,
    )  # fmt: skip
    judgement: Judgement


@dataclass(frozen=True, kw_only=True, repr=False)
class StudyFindings(ShortRepr):
    """All findings."""

    schema: int = SCHEMA
    name: str
    folder: str
    task: str  # id of the environment
    settings: StudySettings
    standing: Standing
    unfinished: int  # trials with training to do
    refused: int
    trials: tuple[TrialFacts, ...]
    finalists: tuple[Finalist, ...]  # the best first; none until that is decided
    pairs: tuple[Pair, ...]  # the best with every other finalist, on the same kind of figures
    importance: tuple[OptionImportance, ...]  # the largest share first
    advice: tuple[Advice, ...]
    comparison: CompareFindings | None  # of all configurations of a grid or list, otherwise of the finalists
    warnings: tuple[str, ...]

    @property
    def is_list(self) -> bool:
        """Whether the study tries given configurations, instead of searching ranges."""
        return all(parameter.kind == "choice" for parameter in self.settings.space)

    @property
    def confirmed(self) -> bool:
        """Whether the finalists have run again on fresh seeds."""
        return any(finalist.confirmed_seeds for finalist in self.finalists)

    @property
    def indistinct(self) -> list[str]:
        """Names of the finalists that cannot be distinguished from the best one."""
        return [pair.b for pair in self.pairs if pair.verdict.outcome != "better"]

    @property
    def ranked(self) -> list[TrialFacts]:
        """The trials with a result, the best first."""
        higher = self.settings.objective.higher_is_better
        known = [trial for trial in self.trials if trial.rungs]
        return sorted(known, key=lambda trial: trial.standing(higher), reverse=True)
