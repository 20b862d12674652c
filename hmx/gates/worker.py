"""`hmx gate try`: train pairs of runs until they decide, and keep the verdict."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from hmx.config.fields import replace
from hmx.config.files import read_plain, words
from hmx.config.schema import Config
from hmx.errors import ExitCode, HmxError, nearest, one_line
from hmx.gates.programs import check_files, command_of, copied, load_changed
from hmx.gates.records import (
    CONFIG,
    RESULT,
    RUNS,
    SCORE,
    SOURCE,
    VERDICT,
    Attempt,
    GateVerdict,
    Ledger,
    Outcome,
    SeedPair,
)
from hmx.jobs.resume import is_trained, train_to
from hmx.jobs.train import check_run
from hmx.records import checkpoints
from hmx.records.atomic import writing
from hmx.records.lock import RunLock
from hmx.records.paths import RunPaths
from hmx.registry.derive import derive
from hmx.registry.load import Loaded, bind
from hmx.runs.checkpoint import equal_states
from hmx.runs.programs import Programs
from hmx.runs.session import open_task
from hmx.runs.signals import SignalGuard
from hmx.runs.sinks import Sink
from hmx.stats.evidence import e_value
from hmx.study.measure import measure
from hmx.study.records import read_record, write_once

WORSE = 20.0  # e-value at which a change is worse; that keeps nothing, so it costs no error budget
_STOPPED = (130, 143, -signal.SIGINT, -signal.SIGTERM)  # exit codes of a command that a signal ended
_LOG = "log.txt"


@dataclasses.dataclass(frozen=True)
class Score:
    """The metric of a seed, as a command of another trainer wrote it."""

    value: float


class Stopped(KeyboardInterrupt):
    """A signal has stopped a run after a checkpoint."""

    def __init__(self, signum: int) -> None:
        self.signum = signum


Tell = Callable[[SeedPair, float, float], None]
"""Receives each pair, the e-value after it, and the e-value that keeps the change."""


class PairTrainer:
    """Decides an attempt; the caller holds the lock of the gate.

    Args:
        gate: with the attempt, which has no verdict yet.
        tell: receives each pair.
        sinks: makes the receivers of a run's records, in addition to its file.
        command_line: kept in the meta.json of each run.
    """

    def __init__(
        self, gate: Ledger, tell: Tell, sinks: Callable[[], Sequence[Sink]], command_line: Sequence[str]
    ) -> None:
        self._gate = gate
        self._tell = tell
        self._sinks = sinks
        self._command_line = command_line
        self._programs = Programs()

    def verdict(self, attempt: Attempt) -> GateVerdict:
        """Train pairs until the attempt is decided, and write the verdict; pairs of earlier processes are used.

        Raises:
            Stopped: a signal; the attempt continues from there.
            HmxError: the baseline cannot run (exit code 4), or the disk is full (3).
        """
        gate, pairs = self._gate, list[SeedPair]()
        baseline = gate.attempts[attempt.baseline]
        for one in (baseline, attempt):
            check_files(one)
        with SignalGuard() as guard:
            looked_at = 0
            while (found := decide(gate, attempt, pairs, looked_at)) is None:
                looked_at = len(pairs)
                if guard.requested is not None:
                    raise Stopped(guard.requested)
                seed = attempt.first_seed + len(pairs)
                try:
                    before = self._values(baseline, seed)
                except HmxError as problem:
                    if problem.exit_code != ExitCode.CHECK_FAILED:
                        raise
                    message = f"cannot judge attempt {attempt.number}: the baseline fails: {problem.message}"
                    raise HmxError(message, problem.hint, ExitCode.CHECK_FAILED) from None
                try:
                    after = self._values(attempt, seed)
                except HmxError as problem:
                    if problem.exit_code == ExitCode.ARTEFACT:
                        raise
                    found = verdict_of(gate, pairs, "failed", problem.message)
                    break
                if not pairs and before == after and same_states(baseline.run(seed), attempt.run(seed)):
                    found = verdict_of(gate, pairs, "same results", f"{len(before)} seeds from {seed} on are equal")
                    break
                both = zip(before, after, strict=True)
                pairs += [SeedPair(seed=seed + i, baseline=one, candidate=other) for i, (one, other) in enumerate(both)]
                self._report(attempt, pairs, len(before))
        write_once(attempt.folder / VERDICT, found)
        return found

    def _report(self, attempt: Attempt, pairs: Sequence[SeedPair], new: int) -> None:
        for count in range(len(pairs) - new + 1, len(pairs) + 1):
            self._tell(pairs[count - 1], e_value(differences(self._gate, pairs[:count])), 1 / attempt.level)

    def _values(self, attempt: Attempt, seed: int) -> tuple[float, ...]:
        """Return the metric of a run that begins with a seed, of each of its seeds; train it if it is not complete."""
        check_files(attempt)
        if attempt.program.command:
            self._run_command(attempt, seed)
        elif attempt.program.source:
            self._run_source(attempt, seed)
        else:
            self._train(attempt, seed)
        return values(self._gate, attempt, seed)

    def _train(self, attempt: Attempt, seed: int) -> None:
        """Train in this process."""
        paths, cfg = attempt.run(seed), config_of(attempt, seed)
        last = derive(cfg).num_updates
        if is_trained(paths, last, last):
            return
        with writing("the run", paths.folder, ExitCode.ARTEFACT):
            paths.folder.mkdir(parents=True, exist_ok=True)
        with RunLock(paths) as lock:
            ended = train_to(
                lock, paths, lambda: check_run(open_task(bind(Loaded(cfg)), programs=self._programs)), until=last,
                sinks=self._sinks(), command_line=self._command_line, programs=self._programs,
            )  # fmt: skip
        if ended.updates < last or ended.signum is not None:
            raise Stopped(ended.signum or signal.SIGINT)

    def _run_source(self, attempt: Attempt, seed: int) -> None:
        """Train with the attempt's copy of hmx, in another process."""
        paths, cfg = attempt.run(seed), config_of(attempt, seed)
        last = derive(cfg).num_updates
        if is_trained(paths, last, last):
            return
        hmx = [sys.executable, "-P", "-m", "hmx"]
        if checkpoints.listing(paths.checkpoints):
            command = [*hmx, "resume", str(paths.folder)]
        else:
            command = [*hmx, "train", "--config", str(attempt.folder / CONFIG), "--force"]
            fixed = {"run.name": paths.name, "run.root": str(paths.root), "run.seed": seed, **copied(attempt)}
            for key, value in fixed.items():
                command += ["--set", f"{key}={value}"]
        where = {**os.environ, "PYTHONPATH": str((attempt.folder / SOURCE).resolve())}
        self._run(command, where, Path(), attempt.folder / f"{RUNS}-{seed:04d}.txt")

    def _run_command(self, attempt: Attempt, seed: int) -> None:
        """Run the command of another trainer."""
        folder = attempt.run(seed).folder
        if (folder / SCORE).exists():
            return
        with writing("the run", folder, ExitCode.ARTEFACT):
            shutil.rmtree(folder, ignore_errors=True)  # of a command that was killed
            folder.mkdir(parents=True)
        command = command_of(attempt, seed, folder)
        self._run(command, dict(os.environ), Path(attempt.program.place), folder / _LOG)
        score = read_result(folder / RESULT, self._gate.settings.objective.metric)
        write_once(folder / SCORE, Score(score))

    def _run(self, command: Sequence[str], environ: dict[str, str], place: Path, log: Path) -> None:
        """Run a command with its output in a file; it gets the signals of a terminal itself."""
        with writing("the output of a command", log, ExitCode.ARTEFACT), log.open("wb") as output:
            try:
                process = subprocess.Popen(
                    command, cwd=place, env=environ, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
                )
            except OSError as problem:
                message = f"cannot run {command[0]}: {words(problem)}"
                raise HmxError(message, "give the path of a program", ExitCode.CHECK_FAILED) from None
            with SignalGuard() as guard:
                code = _wait(process, guard)
        if code in _STOPPED:
            raise Stopped(guard.requested or signal.SIGINT)
        if code:
            lines = log.read_text(errors="replace").strip().splitlines()
            said = next(
                (line for line in lines if line.startswith("error:")), lines[-1] if lines else "it said nothing"
            )
            message = f"exit code {code}: {one_line(said.removeprefix('error: '))}"
            raise HmxError(message, f"its output is in {log}", ExitCode.CHECK_FAILED)


def _wait(process: subprocess.Popen[bytes], guard: SignalGuard) -> int:
    """Wait for a process; a signal that this process got alone is passed on."""
    passed = False
    while True:
        try:
            return process.wait(0.2)
        except subprocess.TimeoutExpired:
            if guard.requested is not None and not passed:
                passed = True
                process.send_signal(guard.requested)


def decide(gate: Ledger, attempt: Attempt, pairs: Sequence[SeedPair], looked_at: int = 0) -> GateVerdict | None:
    """Return the verdict of an attempt by the pairs so far; None if more pairs are needed.

    It looks after each pair but the first `looked_at`, which did not decide; pairs after the decisive one do not count.
    """
    needed, most = 1 / attempt.level, gate.settings.max_seeds
    found = differences(gate, pairs)
    for count in range(looked_at + 1, len(pairs) + 1):
        seen, left = found[:count], most - count
        wins, ties = sum(one > 0 for one in seen), sum(one == 0 for one in seen)
        score = f"the candidate won {wins} of {count} pairs" + f", {ties} were equal" * bool(ties)
        outcome: Outcome | None = (
            "keep" if e_value(seen) >= needed
            else "worse" if e_value([-one for one in seen]) >= WORSE
            else "undecided" if not left
            else "no difference" if e_value(seen, left) < needed
            else None
        )  # fmt: skip
        if outcome is not None:
            return verdict_of(gate, pairs[:count], outcome, score)
    return None


def verdict_of(gate: Ledger, pairs: Sequence[SeedPair], outcome: Outcome, reason: str) -> GateVerdict:
    """Return a verdict with the evidence of its pairs."""
    seen = differences(gate, pairs)
    worse = e_value([-one for one in seen])
    return GateVerdict(outcome=outcome, reason=reason, pairs=tuple(pairs), e_value=e_value(seen), e_worse=worse)


def differences(gate: Ledger, pairs: Sequence[SeedPair]) -> list[float]:
    """Return by how much the candidate is better in each pair."""
    sign = 1 if gate.settings.objective.higher_is_better else -1
    return [sign * (pair.candidate - pair.baseline) for pair in pairs]


def config_of(attempt: Attempt, seed: int) -> Config:
    """Return the configuration of a run of an attempt."""
    return replace(load_changed(attempt).config, {"run.seed": seed, "run.name": f"{seed:04d}"})


def values(gate: Ledger, attempt: Attempt, seed: int) -> tuple[float, ...]:
    """Return the metric of each seed of a complete run.

    Raises:
        HmxError: the run is not complete (exit code 3), or has no finite value (4).
    """
    objective, paths = gate.settings.objective, attempt.run(seed)
    if attempt.program.command:
        return (read_record(Score, paths.folder / SCORE).value,)
    cfg = config_of(attempt, seed)
    sizes = derive(cfg)
    result = measure(paths, objective, 0, sizes.num_updates, sizes.total_env_steps, cfg.run.num_seeds)
    known = tuple(value for value in result.per_seed if value is not None and math.isfinite(value))
    if len(known) < len(result.per_seed):
        message = f"{objective.metric} has no value in the last tenth of {paths.folder}"
        raise HmxError(message, f"hmx doctor {paths.argument}; longer runs: hmx gate new --at", ExitCode.CHECK_FAILED)
    return known


def same_states(one: RunPaths, other: RunPaths) -> bool:
    """Return whether the last checkpoints of two runs have equal states, bit for bit."""
    newest = [checkpoints.newest_intact(paths.checkpoints)[0] for paths in (one, other)]
    return newest[0] is not None and newest[1] is not None and equal_states(newest[0], newest[1])


def read_result(path: Path, metric: str) -> float:
    """Return the metric in the file of another trainer: a field of JSON, or the last tenth of a column of CSV.

    Raises:
        HmxError: there is no file, no such metric, or it is not finite (exit code 4).
    """
    try:
        text = read_plain(path).decode()
    except (OSError, ValueError) as problem:
        message = f"it wrote no result that can be read: {words(problem)}"
        raise HmxError(message, "the command must write {file}", ExitCode.CHECK_FAILED) from None
    try:
        found = json.loads(text)
        names, numbers = list(found), [found.get(metric)]
    except (ValueError, TypeError, AttributeError, RecursionError):
        rows = list(csv.DictReader(io.StringIO(text)))
        names, column = list(rows[0]) if rows else [], [row.get(metric) for row in rows]
        numbers = column[-max(len(column) // 10, 1) :]
    try:
        value = sum(map(float, numbers)) / len(numbers)
    except (TypeError, ValueError, ZeroDivisionError, OverflowError):
        near = nearest(metric, names)
        hint = f"did you mean {near}?" if near else "--metric NAME of a field that it writes"
        message = f"its result has no number {metric}; it has {', '.join(map(str, names[:8])) or 'nothing'}"
        raise HmxError(message, hint, ExitCode.CHECK_FAILED) from None
    if not math.isfinite(value):
        raise HmxError(f"it diverged: {metric} is {value}", "see its output", ExitCode.CHECK_FAILED)
    return value
