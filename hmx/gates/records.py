"""The files of a gate, and what they say together.

A gate is a folder, and its ledger is the folder `attempts`. Like those of a study, its files are created once, as a
whole, and never changed. Attempt 0 is the first baseline. Each run is an ordinary run folder below `ATTEMPT/runs`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from hmx.config.coerce import BadValue, check_range
from hmx.config.fields import fields_of
from hmx.config.option import MAX_SEED, opt, same
from hmx.errors import ExitCode, HmxError, counted
from hmx.records.lock import RunInUse, RunLock
from hmx.records.paths import RunPaths
from hmx.stats.evidence import e_value, stakes
from hmx.study.folder import names_of, numbered
from hmx.study.places import Places
from hmx.study.records import Objective, read_record, write_once

DEFAULT_METRIC = "return"  # stands for the mean episode return
SETTINGS, ATTEMPTS, ATTEMPT, VERDICT, ADOPTED = "gate.json", "attempts", "attempt.json", "verdict.json", "adopted.json"
_HINT = "restore it from a copy: each attempt counts, and none may be left out"
PANEL = "Gate"
PLACES = Places("gate", "gates", re.compile(re.escape(SETTINGS)))
CONFIG, CODE, SOURCE, RUNS = "config.toml", "code", "source", "runs"  # in the folder of an attempt
RESULT, SCORE = "result", "score.json"  # of a seed: what a command writes, and its metric

WORSE = 20.0  # e-value at which a change is worse; that keeps nothing, so it costs no error budget
Outcome = Literal["keep", "worse", "not shown", "undecided", "same", "same results", "failed"]
MEANING: dict[Outcome, str] = {
    "keep": "the change helps", "worse": "the change does harm",
    "not shown": "even if the candidate won all pairs that are left, that would not be enough",
    "undecided": "its pairs do not decide", "same": "the program is equal to the baseline's",
    "same results": "the states of the first seeds are equal to the baseline's, bit for bit",
    "failed": "the candidate cannot run, or diverges",
}  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class GateSettings:
    """The settings of a gate; options of `hmx gate new` derive from its fields."""

    objective: Objective  # for a command of another trainer, its metric is a field of its result
    max_seeds: int = opt(16, "pairs of runs of an attempt, at most", ge=1, le=1000)
    error: float = opt(
        0.05, "probability that all attempts together keep a change that does not help, at most", ge=1e-6, le=0.5
    )
    attempts: int = opt(
        10, "attempts in which half of the error budget is used; more of them are possible", ge=1, le=1_000_000
    )
    seeds: int = opt(1, "seeds of a run, side by side", ge=1, le=1000)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GateRequest:
    """What a change must improve, and how sure that must be."""

    metric: str = opt(
        DEFAULT_METRIC, "number that a change must improve: return, evaluation (the mean return of --eval-episodes "
        "games), another metric, or a field of the file that a command writes", metavar="METRIC", panel=PANEL,
    )  # fmt: skip
    at: int = opt(
        0, "environment steps of each run, per seed; the metric is its mean in the last tenth (default: --steps)",
        "steps", ge=0, le=2**53, panel=PANEL,
    )  # fmt: skip
    maximize: bool = opt(False, "a higher metric is better (default: as the metric says)", panel=PANEL)
    minimize: bool = opt(False, "a lower metric is better", panel=PANEL)
    max_seeds: int = same(GateSettings, "max_seeds", PANEL)
    error: float = same(GateSettings, "error", PANEL)
    attempts: int = same(GateSettings, "attempts", PANEL)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GateProgram:
    """What trains one side; its configuration, code and copy of hmx lie beside it."""

    text: str  # how it differs from the baseline, for readers
    digest: str  # SHA-256 of all that its results depend on
    options: str = ""  # SHA-256 of its options alone
    command: tuple[str, ...] = ()  # of another trainer, with {seed} and {file}; empty for hmx
    place: str = ""  # current folder of the command
    files: dict[str, str] = dataclasses.field(default_factory=dict)  # that are not copied, with their SHA-256
    copies: dict[str, str] = dataclasses.field(default_factory=dict)  # files in its folder, with their SHA-256
    code: dict[str, str] = dataclasses.field(default_factory=dict)  # configuration key -> name of its copy
    source: str = ""  # the checkout that trains it; empty for this hmx


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
    lost: bool = False  # whether a further run of pairs had begun; without a number of each, they count as lost
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
        return shlex.quote(self.folder.name if self.folder == PLACES.place(self.folder.name) else str(self.folder))

    @property
    def baseline(self) -> Attempt:
        """The attempt that was adopted last, or the first baseline."""
        return max(self.attempts, key=lambda one: one.adopted)

    @property
    def open(self) -> Attempt | None:
        """The attempt without a verdict."""
        return next((one for one in self.attempts[1:] if one.verdict is None), None)

    @property
    def levels(self) -> list[float]:
        """The level of each attempt that compared a pair, in order, and of the next one."""
        return self._budget[0]

    @property
    def left(self) -> float:
        """The part of the error budget that is left."""
        return self._budget[1]

    @functools.cached_property
    def _budget(self) -> tuple[list[float], float]:
        staked = (one.verdict for one in self.attempts if one.verdict and (one.verdict.pairs or one.verdict.lost))
        outcomes = [None if verdict.outcome == "keep" else verdict.e_value for verdict in staked]
        return stakes(self.settings.error, self.settings.attempts, outcomes)

    @property
    def next_seed(self) -> int:
        """The first seed after those of all runs that any decision has seen."""
        staked = (one for one in self.attempts[1:] if one.verdict and (one.verdict.pairs or one.verdict.lost))
        return max((self.seeds_of(one).stop for one in staked), default=self.attempts[0].first_seed)

    def seeds_of(self, attempt: Attempt) -> range:
        """Return the seeds that both sides of an attempt may have trained: those of whole runs."""
        verdict, most, together = attempt.verdict, self.settings.max_seeds, self.settings.seeds
        used = max(len(verdict.pairs) + verdict.lost * together, 1) if verdict else most
        return range(attempt.first_seed, attempt.first_seed + -(-used // together) * together)


def find_gate(text: str | Path) -> Ledger:
    """Read a gate by its name below `gates/` or by its path; errors as of `read_gate`."""
    return read_gate(PLACES.find(text))


def read_gate(folder: Path) -> Ledger:
    """Read a gate by its folder.

    Raises:
        HmxError: there is none, a file of it is damaged, or its files do not fit together (exit code 3).
    """
    settings = read_record(GateSettings, folder / SETTINGS, _HINT)
    places = [attempt_folder(folder, 0), *(place for _, place in numbered(folder / ATTEMPTS))]
    attempts = tuple(filter(None, map(_read_attempt, places)))
    found = Ledger(folder=folder, settings=settings, attempts=attempts)
    for file, why in _unfit(found):
        raise HmxError(f"{file} is damaged: {why}", _HINT, ExitCode.ARTEFACT)
    return found


def _read_attempt(folder: Path) -> Attempt | None:
    """Read an attempt; None for a folder in which it has not begun."""
    names = names_of(folder)
    if not names & {ATTEMPT, VERDICT, ADOPTED}:
        return None
    attempt = read_record(Attempt, folder / ATTEMPT, _HINT)
    verdict = read_record(GateVerdict, folder / VERDICT, _HINT) if VERDICT in names else None
    adopted = read_record(Adoption, folder / ADOPTED, _HINT).order if ADOPTED in names else 0
    return dataclasses.replace(attempt, folder=folder, verdict=verdict, adopted=adopted)


def _unfit(gate: Ledger) -> Iterator[tuple[Path, str]]:
    """Yield what files of a gate cannot say; after this, decisions and reports need no checks."""
    settings, objective = gate.settings, gate.settings.objective
    for field in fields_of(GateSettings).values():
        try:
            check_range(field, getattr(settings, field.name))
        except BadValue as bad:
            yield gate.folder / SETTINGS, f"{field.name} {bad.message}"
    if objective != Objective(metric=objective.metric, maximize=objective.maximize):
        yield gate.folder / SETTINGS, "its objective is none of a gate"
    if not gate.attempts:
        yield gate.folder / ATTEMPTS, "it has no baseline"
    for number, one in enumerate(gate.attempts):
        file, verdict = one.folder / ATTEMPT, one.verdict
        if one.number != number or one.folder != attempt_folder(gate.folder, number):
            yield file, f"it is attempt {one.number!s:.20} where attempt {number} is missing"
        if one.baseline >= max(number, 1) or (one.baseline and not gate.attempts[one.baseline].adopted):
            yield file, f"attempt {one.baseline!s:.20} is not a baseline"
        if one.first_seed > MAX_SEED or not 0 <= one.level <= 1 or (number and not one.level):
            yield file, "no gate has its first seed or its level"
        if any(Path(name).name != name for name in one.program.code.values()):
            yield file, "its code is outside its folder"
        seeds = [pair.seed for pair in verdict.pairs] if verdict else []
        if len(seeds) > settings.max_seeds or seeds != list(range(one.first_seed, one.first_seed + len(seeds))):
            yield one.folder / VERDICT, "its seeds are not those of the attempt"
        if verdict and min(verdict.e_value, verdict.e_worse) < 0:
            yield one.folder / VERDICT, "an e-value is not negative"
        if one.adopted and (verdict is None or verdict.outcome != "keep" or one.adopted > number):
            yield one.folder / ADOPTED, "it was not kept"


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[RunLock]:
    """Keep other processes from changing a gate inside the block; yields its lock."""
    try:
        with RunLock(RunPaths(folder.parent, folder.name)) as lock:
            yield lock
    except RunInUse as problem:
        hint = "wait until it ends: its verdict decides which baseline and which level the next attempt has"
        raise HmxError(f"another process tries a change: {problem.message}", hint) from None


def attempt_folder(gate: Path, number: int) -> Path:
    """Return the folder of an attempt, which need not exist."""
    return gate / ATTEMPTS / f"{number:04d}"


def adopt(gate: Ledger, number: int) -> Ledger:
    """Make an attempt the baseline of the next ones.

    Raises:
        HmxError: there is no such attempt, its verdict is not keep, it was compared with an earlier baseline, or
            another process tries a change (exit code 2).
    """
    with alone(gate.folder):
        gate = read_gate(gate.folder)
        status = f"hmx gate status {gate.argument}"
        if not 0 < number < len(gate.attempts):
            raise HmxError(f"there is no attempt {number}", f"{status} lists them")
        attempt = gate.attempts[number]
        if attempt.adopted:
            raise HmxError(f"attempt {number} was adopted before", f"{status} shows the baseline")
        verdict = attempt.verdict.outcome if attempt.verdict else "not known yet"
        if verdict != "keep":
            raise HmxError(f"cannot adopt attempt {number}: its verdict is {verdict}", "only keep can be adopted")
        now = gate.baseline.number
        if attempt.baseline != now:
            what = f"it was compared with attempt {attempt.baseline}, and the baseline is attempt {now} now"
            raise HmxError(f"cannot adopt attempt {number}: {what}", "try the change again with the new baseline")
        write_once(attempt.folder / ADOPTED, Adoption(order=1 + max(one.adopted for one in gate.attempts)))
        return read_gate(gate.folder)


def decide(gate: Ledger, attempt: Attempt, pairs: Sequence[SeedPair], looked_at: int = 0) -> GateVerdict | None:
    """Return the verdict of an attempt by the pairs so far; None if more pairs are needed.

    It looks after each pair but the first `looked_at`, which did not decide; pairs after the decisive one do not count.
    """
    needed, most = 1 / attempt.level, gate.settings.max_seeds
    found = differences(gate, pairs)
    for count in range(looked_at + 1, len(pairs) + 1):
        seen, left = found[:count], most - count
        wins, ties = sum(one > 0 for one in seen), sum(one == 0 for one in seen)
        score = f"the candidate won {wins} of {counted(count, 'pair')}" + f", {ties} equal" * bool(ties)
        outcome: Outcome | None = (
            "keep" if e_value(seen) >= needed
            else "worse" if e_value([-one for one in seen]) >= WORSE
            else "undecided" if not left
            else "not shown" if e_value(seen, left) < needed
            else None
        )  # fmt: skip
        if outcome is not None:
            return verdict_of(gate, pairs[:count], outcome, score)
    return None


def verdict_of(
    gate: Ledger, pairs: Sequence[SeedPair], outcome: Outcome, reason: str, lost: bool = False
) -> GateVerdict:
    """Return a verdict with the evidence of its pairs, and of a run that was `lost`: a loss larger than all others.

    Otherwise an attempt could end whenever its next pair looks bad, and only pairs that look good would count.
    """
    seen, more = differences(gate, pairs), lost * gate.settings.seeds
    return GateVerdict(
        outcome=outcome, reason=reason, pairs=tuple(pairs), lost=lost, e_value=e_value(seen, -more),
        e_worse=e_value([-one for one in seen], more),
    )  # fmt: skip


def differences(gate: Ledger, pairs: Sequence[SeedPair]) -> list[float]:
    """Return by how much the candidate is better in each pair."""
    sign = 1 if gate.settings.objective.maximize else -1
    return [sign * (pair.candidate - pair.baseline) for pair in pairs]
