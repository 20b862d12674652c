"""The files of a study, and what they say together.

A study is a folder. Every decision is a file that is created once, as a whole, and never changed, so any number of
processes may work on it. Each trial is an ordinary run folder with a few more files.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from hmx.config.files import make_folder, words
from hmx.config.option import MAX_SEED, opt
from hmx.config.schema import Config
from hmx.errors import ExitCode, HmxError
from hmx.records import atomic
from hmx.records.artefact import read_json, sealed
from hmx.records.curves import RETURN
from hmx.records.paths import RunPaths
from hmx.records.plain import JsonValue, plain_object, typed

SCHEMA = 1
Measure = Literal["final", "auc", "steps_to", "cpu_seconds_to"]
"""The mean of the last tenth, the mean over the steps, and steps or CPU seconds of training to a threshold."""
Sampler = Literal["quasi-random", "random", "grid", "tpe", "cmaes", "gp"]
TrialState = Literal["waiting", "running", "paused", "finished", "failed", "refused"]
"""waiting: has work to do, and no process does it; paused: stopped at a rung, from which it may be promoted."""

MAX_NUMBER = 9_999_999  # of a trial, and trials of a study that was extended; some are refused
MAX_RUNGS = 10
MAX_SEEDS = 10_000
TRIALS, CONFIRM, CONFIGS = "trials", "confirm", "configs"  # folders of a study
PROPOSAL, CONFIRMED = "trial.json", "confirm.json"  # in the folder of a trial, and of a confirmation
SETTINGS = re.compile(r"study\.([1-9][0-9]*)\.toml")
CONFIG_KEY = "config"  # configuration key that a trial starts from, in a study of several

R = TypeVar("R")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Parameter:
    """An option that a study varies: a range, or choices."""

    key: str
    kind: Literal["float", "int", "choice"]
    low: float | None = None  # of a range; both ends belong to it
    high: float | None = None
    log: bool = False  # whether equal ratios, not equal differences, are equally likely
    choices: tuple[JsonValue, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Objective:
    """What a study optimises: a number of each seed's curve."""

    metric: str = RETURN
    measure: Measure = "final"
    threshold: float | None = None  # of steps_to and cpu_seconds_to
    maximize: bool = True  # the metric

    @property
    def higher_is_better(self) -> bool:
        """Whether a higher value of the objective is better; a threshold should be reached early."""
        return self.maximize and self.measure in ("final", "auc")

    def order(self, value: float | None) -> tuple[bool, float]:
        """Return the key that sorts values of the objective: the best first, and a missing one last."""
        return value is None, (-1.0 if self.higher_is_better else 1.0) * (value or 0.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StudySettings:
    """The settings of a study, as of its newest settings file; options of `hmx study new` derive from its fields."""

    revision: int = 1  # number of the settings file
    space: tuple[Parameter, ...]
    objective: Objective = Objective()
    trials: int  # trials to run, without those that are refused
    rungs: tuple[float, ...] = (1.0,)  # shares of a trial's run, rising, the last one 1
    eta: int = opt(3, "one of so many trials continues to the next rung", ge=2, le=100)
    sampler: Sampler = "quasi-random"
    sampler_seed: int = opt(0, "seed of the sampler", ge=0, le=MAX_SEED)
    batch: int = opt(
        8, "with --synchronous: trials that tpe, cmaes or gp propose from the same results", "trials", ge=1, le=10_000
    )
    synchronous: bool = opt(
        False, "decide only when all results of a rung or batch are known: equal studies then have equal files"
    )
    confirm_top: int = opt(0, "number of configurations to confirm", ge=0, le=1000)
    confirm_seeds: int = opt(
        0, "fresh seeds on which the best configurations run again; 0 for none", "seeds", ge=0, le=MAX_SEEDS
    )
    max_kills: int = opt(
        3, "killed workers in a row, without progress of the trial, after which it fails; 0 for no bound, where "
        "workers are often killed for other reasons", "workers", ge=0, le=1000,
    )  # fmt: skip
    versions: dict[str, str] = dataclasses.field(default_factory=dict)  # of the packages that results depend on


@dataclasses.dataclass(frozen=True, kw_only=True)
class RungResult:
    """The result of a trial at a rung. It holds no times and no names of hosts, so equal studies have equal files."""

    rung: int
    update: int
    env_steps: int
    per_seed: tuple[float | None, ...]  # None: never reported, not finite, or never reached
    objective: float | None  # interquartile mean over the seeds, for a threshold the median; None ranks last
    failed: str = ""  # why the run cannot continue, such as a loss that is not finite


@dataclasses.dataclass(frozen=True, kw_only=True)
class Promotion:
    """The decision to train a trial to the next rung."""

    rung: int
    seen: str  # numbers of the trials whose results at the rung below were known


@dataclasses.dataclass(frozen=True, kw_only=True)
class StudyRun:
    """A run of a study with its results, which have files of their own."""

    folder: Path = dataclasses.field(default=Path(), metadata={"json": False})
    rungs: tuple[RungResult, ...] = dataclasses.field(default=(), metadata={"json": False})  # from rung 0

    @property
    def result(self) -> RungResult | None:
        """The result at its highest rung."""
        return self.rungs[-1] if self.rungs else None

    @property
    def objective(self) -> float | None:
        """The objective at its highest rung."""
        return self.result.objective if self.result else None

    @property
    def failed(self) -> str:
        """Why it cannot continue; empty if it can."""
        return self.result.failed if self.result else ""

    @property
    def paths(self) -> RunPaths:
        """The paths of its run."""
        return RunPaths(self.folder.parent, self.folder.name)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trial(StudyRun):
    """A trial: its file has what the sampler chose, and from what."""

    number: int
    values: dict[str, JsonValue] = dataclasses.field(default_factory=dict)  # by key
    sampler: Sampler
    revision: int  # of the settings
    seen: tuple[str, ...] = ()  # per rung: numbers of the trials whose results the sampler had seen, such as 1-57,60
    refused: str = ""  # why it cannot run; a refused trial does not count
    promotions: tuple[Promotion, ...] = dataclasses.field(default=(), metadata={"json": False})  # from rung 1

    @property
    def label(self) -> str:
        """The name of the configuration that it starts from, in a study of several; otherwise empty."""
        return str(self.values.get(CONFIG_KEY, ""))

    @property
    def promoted(self) -> int:
        """The highest rung that it may train to."""
        return self.promotions[-1].rung if self.promotions else 0

    @property
    def open(self) -> bool:
        """Whether it has training to do before the next decision about it."""
        return not self.refused and not self.failed and len(self.rungs) <= self.promoted


@dataclasses.dataclass(frozen=True, kw_only=True)
class Confirmation(StudyRun):
    """The configuration of a trial on fresh seeds; it has one rung."""

    trial: int
    seeds: tuple[int, ...]
    seen: str  # numbers of the trials whose results at the last rung were known

    @property
    def number(self) -> int:
        """The number of its trial."""
        return self.trial

    @property
    def open(self) -> bool:
        """Whether it has training to do."""
        return not self.rungs


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study:
    """A study as its files are now."""

    folder: Path
    history: tuple[StudySettings, ...]  # revision 1 first
    configs: Mapping[str, Config]  # what trials start from, by name; most studies have one
    trials: tuple[Trial, ...]  # by number
    confirmations: tuple[Confirmation, ...]  # by number of the trial

    @property
    def settings(self) -> StudySettings:
        """The settings that hold now."""
        return self.history[-1]

    @property
    def base(self) -> Config:
        """The configuration that trials start from; the first one of several."""
        return next(iter(self.configs.values()))

    @functools.cached_property
    def accepted(self) -> tuple[Trial, ...]:
        """The trials that count."""
        return tuple(trial for trial in self.trials if not trial.refused)

    @functools.cached_property
    def by_number(self) -> Mapping[int, Trial]:
        """The trials by number."""
        return {trial.number: trial for trial in self.trials}

    @functools.cached_property
    def confirmed(self) -> Mapping[int, Confirmation]:
        """The confirmations with a result, by the number of the trial."""
        return {one.trial: one for one in self.confirmations if one.result}

    @property
    def runs(self) -> tuple[Trial | Confirmation, ...]:
        """All runs: trials, also those that are refused, and confirmations."""
        return *self.trials, *self.confirmations

    def seeds_of(self, run: Trial | Confirmation) -> tuple[int, ...]:
        """Return the seeds of a run."""
        own = self.base.run
        return run.seeds if isinstance(run, Confirmation) else tuple(range(own.seed, own.seed + own.num_seeds))

    @property
    def last_rung(self) -> int:
        """The number of the rung at which a trial is finished."""
        return len(self.settings.rungs) - 1

    def ranked(self, rung: int) -> list[Trial]:
        """Return the trials that have a result at a rung, the best first; equal ones by number."""
        return rank((trial for trial in self.trials if len(trial.rungs) > rung), rung, self.settings.objective)

    def best(self) -> list[Trial]:
        """Return all trials with a result, the best first: those of the highest rung come before all others."""
        trials: list[Trial] = []
        for rung in reversed(range(self.last_rung + 1)):
            trials += [trial for trial in self.ranked(rung) if len(trial.rungs) == rung + 1]
        return trials


def rank(trials: Iterable[Trial], rung: int, objective: Objective) -> list[Trial]:
    """Return trials in the order of their results at a rung, the best first; one without an objective is last."""
    return sorted(trials, key=lambda trial: (*objective.order(trial.rungs[rung].objective), trial.number))


def trial_folder(study: Path, number: int) -> Path:
    """Return the folder of a trial, which need not exist."""
    return study / TRIALS / f"{number:04d}"


def confirmation_folder(study: Path, trial: int) -> Path:
    """Return the folder of the confirmation of a trial, which need not exist."""
    return study / CONFIRM / f"{trial:04d}"


def rung_file(folder: Path, rung: int) -> Path:
    """Return the file of the result at a rung."""
    return folder / f"rung-{rung}.json"


def promotion_file(folder: Path, rung: int) -> Path:
    """Return the file of the promotion to a rung."""
    return folder / f"promote-{rung}.json"


def write_once(path: Path, record: object) -> bool:
    """Create the file of a decision or a result; return False if there is one already, which stays as it is.

    Raises:
        HmxError: it cannot be written (exit code 3).
    """
    return create(path, sealed({"schema": SCHEMA, **plain_object(record)}))


def create(path: Path, text: str) -> bool:
    """Create a file of a study, with its folder; errors and result as of `write_once`."""
    try:
        if SETTINGS.fullmatch(path.name):
            path.parent.mkdir(parents=True, exist_ok=True)  # the study folder may be a link
        else:
            make_folder(path.parent, parents=True)
        return atomic.create(path, text)
    except OSError as problem:
        message = f"cannot write {path}: {words(problem)}"
        hint = "free some space or choose another disk; what is finished stays, and a new worker continues"
        raise HmxError(message, hint, ExitCode.ARTEFACT) from problem


def read_record(kind: type[R], path: Path, hint: str = "") -> R:
    """Read the file of a decision or a result; `hint` says what to do about a damaged one.

    Raises:
        NewerSchema: a later hmx wrote it (exit code 3).
        HmxError: it is missing, damaged, or another kind of file (3).
    """
    hint = hint or f"restore it, or delete it to have it made again: {path}"
    data = read_json(path, SCHEMA, f"{path} is missing", hint, sealed_from=1)
    try:
        data.pop("schema")
        if data.keys() & _of_other_files(kind):  # type: ignore[arg-type]  # a class is hashable
            raise TypeError("it has values of other files")
        return typed(kind, data)
    except (TypeError, AttributeError, KeyError):
        raise HmxError(f"{path} is damaged: not a record of this kind", hint, ExitCode.ARTEFACT) from None


@functools.cache
def _of_other_files(kind: Any) -> frozenset[str]:
    """Return the fields of a record that its own file does not have; a study reads thousands of records."""
    return frozenset(field.name for field in dataclasses.fields(kind) if not field.metadata.get("json", True))


def ranges_of(numbers: Collection[int]) -> str:
    """Write numbers as ranges, such as `1-57,60`."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(f"{low}" if low == high else f"{low}-{high}" for low, high in ranges)


def numbers_of(ranges: str) -> list[int]:
    """Return the numbers that `ranges_of` wrote."""
    numbers: list[int] = []
    for part in filter(None, ranges.split(",")):
        low, _, high = part.partition("-")
        numbers += range(int(low), int(high or low) + 1)
    return numbers
