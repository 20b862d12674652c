"""The files of a gate, and what they say together.

A gate is a folder, and its ledger is the folder `attempts`. Like those of a study, its files are created once, as a
whole, and never changed. Attempt 0 is the first baseline. Each run is an ordinary run folder below `ATTEMPT/runs`.
"""

from __future__ import annotations

import dataclasses
import functools
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from hmx.config.files import names_in, words
from hmx.config.names import clean_run_name, is_run_name
from hmx.config.option import opt
from hmx.errors import ExitCode, HmxError, nearest
from hmx.records.paths import RunPaths
from hmx.stats.evidence import stakes
from hmx.study.records import Objective, read_record, write_once

DEFAULT_METRIC = "return"  # stands for the mean episode return
GATES = "gates"  # folder of the gates, for names
SETTINGS, ATTEMPTS, ATTEMPT, VERDICT, ADOPTED = "gate.json", "attempts", "attempt.json", "verdict.json", "adopted.json"
CONFIG, CODE, SOURCE, RUNS = "config.toml", "code", "source", "runs"  # in the folder of an attempt
RESULT, SCORE = "result", "score.json"  # of a seed: what a command writes, and its metric

Outcome = Literal["keep", "worse", "no difference", "undecided", "same", "same results", "failed"]
"""same: equal programs; same results: equal states of the first seeds; no difference: even if all pairs that are left
were won, that would not be enough; undecided: the pairs are used up; failed: the candidate cannot run, or diverges."""
MEANING: dict[Outcome, str] = {
    "keep": "the change helps", "worse": "the change does harm",
    "no difference": "even if the candidate won all pairs that are left, that would not be enough",
    "undecided": "all pairs are used up", "same": "the program is equal to the baseline's",
    "same results": "the states of the first seeds are equal to the baseline's, bit for bit",
    "failed": "the candidate cannot run",
}  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class GateSettings:
    """The settings of a gate; options of `hmx gate new` derive from its fields."""

    objective: Objective  # for a command of another trainer, its metric is a field of its result
    max_seeds: int = opt(16, "pairs of runs of an attempt, at most", ge=1, le=1000)
    error: float = opt(
        0.05, "probability that all attempts together keep a change that does not help, at most", gt=0, le=0.5
    )
    attempts: int = opt(10, "attempts in which half of the error budget is used; more of them are possible", ge=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GateProgram:
    """What trains one side; its configuration, code and copy of hmx lie beside it."""

    text: str  # how it differs from the baseline, for readers
    digest: str  # SHA-256 of all that its results depend on
    command: tuple[str, ...] = ()  # of another trainer, with {seed} and {file}; empty for hmx
    place: str = ""  # current folder of the command
    files: dict[str, str] = dataclasses.field(default_factory=dict)  # that are not copied, with their SHA-256
    code: dict[str, str] = dataclasses.field(default_factory=dict)  # key of the configuration -> name of its copy
    source: str = ""  # SHA-256 of its copy of hmx; empty for this hmx


@dataclasses.dataclass(frozen=True, kw_only=True)
class SeedPair:
    """The metric of both sides for a seed."""

    seed: int
    baseline: float
    candidate: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class GateVerdict:
    """The result of an attempt."""

    outcome: Outcome
    reason: str
    pairs: tuple[SeedPair, ...] = ()
    e_value: float = 1.0  # against "the change does not help"
    e_worse: float = 1.0  # against "the change does no harm"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Adoption:
    """An attempt became the baseline."""

    order: int  # 1 for the first one


@dataclasses.dataclass(frozen=True, kw_only=True)
class Attempt:
    """An attempt; its file has what was decided before it began."""

    number: int
    program: GateProgram
    baseline: int  # number of the attempt that it is compared with
    first_seed: int
    level: float  # probability that it keeps a change that does not help, at most
    versions: dict[str, str] = dataclasses.field(default_factory=dict)
    folder: Path = dataclasses.field(default=Path(), metadata={"json": False})
    verdict: GateVerdict | None = dataclasses.field(default=None, metadata={"json": False})
    adopted: int = dataclasses.field(default=0, metadata={"json": False})  # order of its adoption; 0 for none

    def run(self, seed: int) -> RunPaths:
        """Return the paths of its run that begins with a seed."""
        return RunPaths(self.folder / RUNS, f"{seed:04d}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ledger:
    """A gate as its files are now."""

    folder: Path
    settings: GateSettings
    attempts: tuple[Attempt, ...]  # by number; attempt 0 is the first baseline

    @property
    def argument(self) -> str:
        """Its name on a command line, quoted for the shell."""
        return shlex.quote(self.folder.name if self.folder.parent == Path(GATES) else str(self.folder))

    @property
    def baseline(self) -> Attempt:
        """The attempt that was adopted last, or the first baseline."""
        return max(self.attempts, key=lambda one: one.adopted)

    @property
    def open(self) -> Attempt | None:
        """The attempt without a verdict."""
        return next((one for one in self.attempts[1:] if one.verdict is None), None)

    @functools.cached_property
    def levels(self) -> list[float]:
        """The level of each attempt that compared a pair, in order, and of the next one."""
        outcomes = [None if v.outcome == "keep" else v.e_value for v in self._staked]
        return stakes(self.settings.error, self.settings.attempts, outcomes)

    @property
    def left(self) -> float:
        """The part of the error budget that is left."""
        return self.levels[-1] * (self.settings.attempts + 1 + sum(v.outcome != "keep" for v in self._staked))

    @property
    def _staked(self) -> Sequence[GateVerdict]:
        return [one.verdict for one in self.attempts if one.verdict and one.verdict.pairs]

    def next_seed(self, first: int) -> int:
        """Return the first seed after those that any decision has seen; `first` without any."""
        seen = [pair.seed + 1 for one in self.attempts if one.verdict for pair in one.verdict.pairs]
        return max([first, *seen])


def gate_place(text: str | Path) -> Path:
    """Return the folder of a gate: a bare name is below `gates/`."""
    path = Path(text)
    return path if path.parent != Path() else Path(GATES) / path


def list_gates(root: str | Path = GATES) -> list[str]:
    """Return the sorted names of the gates in a folder."""
    place = Path(root)
    return sorted(one.name for one in place.iterdir() if (one / SETTINGS).is_file()) if place.is_dir() else []


def check_new(folder: Path) -> None:
    """Refuse (exit code 2) the name of a gate that is invalid or taken."""
    if not is_run_name(folder.name):
        hint = f"hmx gate new {shlex.quote(clean_run_name(folder.name))}"
        raise HmxError(f"{folder.name!r} cannot be the name of a gate", hint)
    if (folder / SETTINGS).exists():
        place = shlex.quote(str(folder))
        raise HmxError(f"there is a gate {folder}", f"use another name, or see what it has: hmx gate status {place}")


def find_gate(text: str | Path, root: str | Path = GATES) -> Ledger:
    """Read a gate by its name in `root` or by its path.

    Raises:
        HmxError: there is none, or a file of it is damaged (exit code 3).
    """
    for folder in (Path(root) / text, Path(text)):
        if (folder / SETTINGS).is_file():
            return read_gate(folder)
    near = nearest(str(text), list_gates(root))
    raise HmxError(f"there is no gate {text}", f"did you mean {near}?" if near else "hmx gate new makes one",
                   ExitCode.ARTEFACT)  # fmt: skip


def read_gate(folder: Path) -> Ledger:
    """Read a gate by its folder; errors as of `find_gate`."""
    try:
        names = sorted(name for name in names_in(folder / ATTEMPTS) if name.isdecimal())
    except OSError as problem:
        hint = "restore the folder; a link inside a gate is not followed"
        raise HmxError(f"cannot read {folder / ATTEMPTS}: {words(problem)}", hint, ExitCode.ARTEFACT) from None
    attempts = [_read_attempt(folder / ATTEMPTS / name) for name in names]
    known = tuple(one for one in attempts if one is not None)
    if [one.number for one in known] != list(range(len(known))) or not known:
        missing = f"{folder / ATTEMPTS} lacks an attempt: it has {[one.number for one in known]}"
        raise HmxError(missing, "restore it from a copy; every attempt counts", ExitCode.ARTEFACT)
    return Ledger(folder=folder, settings=read_record(GateSettings, folder / SETTINGS), attempts=known)


def _read_attempt(folder: Path) -> Attempt | None:
    """Read an attempt; None for a folder in which it has not begun."""
    names = set(names_in(folder))
    if ATTEMPT not in names:
        return None
    attempt = read_record(Attempt, folder / ATTEMPT)
    verdict = read_record(GateVerdict, folder / VERDICT) if VERDICT in names else None
    adopted = read_record(Adoption, folder / ADOPTED).order if ADOPTED in names else 0
    return dataclasses.replace(attempt, folder=folder, verdict=verdict, adopted=adopted)


def attempt_folder(gate: Path, number: int) -> Path:
    """Return the folder of an attempt, which need not exist."""
    return gate / ATTEMPTS / f"{number:04d}"


def adopt(gate: Ledger, number: int) -> Ledger:
    """Make an attempt the baseline of the next ones.

    Raises:
        HmxError: there is no such attempt, its verdict is not keep, or it was compared with an earlier baseline.
    """
    attempt = next((one for one in gate.attempts[1:] if one.number == number), None)
    if attempt is None:
        raise HmxError(f"there is no attempt {number}", f"hmx gate status {gate.argument} lists them")
    if attempt.adopted:
        raise HmxError(f"attempt {number} was adopted before", f"hmx gate status {gate.argument} shows the baseline")
    if attempt.verdict is None or attempt.verdict.outcome != "keep":
        verdict = attempt.verdict.outcome if attempt.verdict else "not known yet"
        raise HmxError(f"cannot adopt attempt {number}: its verdict is {verdict}", "only keep can be adopted")
    if attempt.baseline != gate.baseline.number:
        message = (
            f"cannot adopt attempt {number}: it was compared with attempt {attempt.baseline}, and the baseline is "
        )
        raise HmxError(f"{message}attempt {gate.baseline.number} now", "try the change again with the new baseline")
    order = 1 + max(one.adopted for one in gate.attempts)
    write_once(attempt.folder / ADOPTED, Adoption(order=order))
    return read_gate(gate.folder)
