"""`hmx gate try`: train pairs of runs until they decide."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import errno
import io
import json
import math
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from hmx.config.fields import replace
from hmx.config.files import make_folder, read_plain, words
from hmx.config.schema import Config
from hmx.config.textfile import quoted
from hmx.errors import ExitCode, HmxError, nearest, one_line
from hmx.gates.programs import check_files, copied, load_changed
from hmx.gates.records import (
    CONFIG,
    RESULT,
    RUNS,
    SCORE,
    SOURCE,
    Attempt,
    GateVerdict,
    Ledger,
    SeedPair,
    decide,
    differences,
    verdict_of,
)
from hmx.jobs.resume import is_trained, train_to
from hmx.jobs.train import check_run
from hmx.records import checkpoints
from hmx.records.artefact import NewerSchema
from hmx.records.atomic import writing
from hmx.records.lock import RunInUse, RunLock
from hmx.records.paths import RunPaths
from hmx.registry.derive import derive
from hmx.registry.load import Loaded, bind
from hmx.runs.checkpoint import equal_states
from hmx.runs.programs import Programs
from hmx.runs.session import open_task
from hmx.runs.signals import SignalGuard, StopNow
from hmx.runs.sinks import Sink
from hmx.simulators.process import Guard
from hmx.stats.evidence import e_value
from hmx.study.measure import measure
from hmx.study.records import read_record, write_once

_STOPPED = (130, 143, -signal.SIGINT, -signal.SIGTERM)  # exit codes of a command that a signal ended
_LOG = "log.txt"
_TAIL = 1 << 16  # bytes of a log that are read
_LONGEST = 300  # characters of a line of it that are shown


@dataclasses.dataclass(frozen=True)
class Score:
    """The metric of a seed, as a command of another trainer wrote it."""

    value: float


Tell = Callable[[str], None]
"""Receives a line about each pair."""

Show = Callable[[str, bool], AbstractContextManager[Sequence[Sink]]]
"""Shows what runs while a block lasts, and whether it runs in another process; gives the receivers of its records."""


@dataclasses.dataclass(frozen=True)
class PairTrainer:
    """Decides an attempt of a gate that has no verdict yet."""

    gate: Ledger
    lock: RunLock  # of the gate; processes that train inherit it
    tell: Tell
    show: Show
    command_line: Sequence[str]  # kept in the meta.json of each run
    programs: Programs = dataclasses.field(default_factory=Programs)

    def verdict(self, attempt: Attempt) -> GateVerdict:
        """Train pairs until the attempt is decided; pairs of earlier processes are used.

        Raises:
            StopNow: a signal; the attempt continues from there.
            HmxError: the baseline cannot run (exit code 4), or the disk is full (3).
        """
        gate, pairs, looked_at = self.gate, list[SeedPair](), 0
        baseline = gate.attempts[attempt.baseline]
        with SignalGuard() as guard:
            while (found := decide(gate, attempt, pairs, looked_at)) is None:
                looked_at = len(pairs)
                if guard.requested is not None:
                    raise StopNow(guard.requested)
                seed = attempt.first_seed + looked_at
                try:
                    side = baseline
                    before = self._values(side, seed)
                    side = attempt
                    after = self._values(side, seed)
                except RunInUse:
                    raise
                except HmxError as problem:
                    newer = bool(side.program.source) and isinstance(problem, NewerSchema)
                    if problem.exit_code == ExitCode.ARTEFACT and not newer:
                        raise
                    if side is attempt:
                        lost = bool(pairs) or has_measured(gate, attempt, seed)
                        return verdict_of(gate, pairs, "failed", problem.message, lost)
                    message = f"cannot judge attempt {attempt.number}: the baseline fails: {problem.message}"
                    raise HmxError(message, problem.hint, ExitCode.CHECK_FAILED) from None
                if not pairs and before == after and same_states(baseline.run(seed), attempt.run(seed)):
                    return verdict_of(gate, (), "same results", f"{len(before)} seeds from {seed} on are equal")
                pairs += _pairs(seed, before, after)
                for count in range(looked_at + 1, len(pairs) + 1):
                    self.tell(_line(gate, attempt, pairs[:count]))
        return found

    def _values(self, attempt: Attempt, seed: int) -> tuple[float, ...]:
        """Return the metric of each seed of the run that begins with a seed; train it if it is not complete."""
        check_files(attempt)
        paths = attempt.run(seed)
        with writing("the run", paths.folder, ExitCode.ARTEFACT):
            make_folder(paths.root, parents=True)  # not through a link
        program, side = attempt.program, f"attempt {attempt.number}" if attempt.number else "the first baseline"
        with self.show(f"seed {seed} of {side}", bool(program.command or program.source)) as sinks:
            if program.command:
                self._run_command(attempt, seed)
            elif not is_trained(paths, last := derive(config_of(attempt, seed)).num_updates, last):
                if program.source:
                    self._run_source(attempt, seed, last)
                else:
                    self._train(attempt, seed, last, sinks)
        return values(self.gate, attempt, seed)

    def _train(self, attempt: Attempt, seed: int, last: int, sinks: Sequence[Sink]) -> None:
        """Train in this process."""
        paths, cfg = attempt.run(seed), config_of(attempt, seed)
        with writing("the run", paths.folder, ExitCode.ARTEFACT):
            make_folder(paths.folder)
        with RunLock(paths) as lock:
            ended = train_to(
                lock, lambda: check_run(open_task(bind(Loaded(cfg)), programs=self.programs)), until=last,
                sinks=sinks, command_line=self.command_line, programs=self.programs,
            )  # fmt: skip
        if ended.updates < last or ended.signum is not None:
            raise StopNow(ended.signum or signal.SIGINT)

    def _run_source(self, attempt: Attempt, seed: int, last: int) -> None:
        """Train with the attempt's copy of hmx, in another process."""
        paths = attempt.run(seed)
        command = [sys.executable, "-P", "-m", "hmx", "resume", str(paths.folder)]
        if not checkpoints.listing(paths.checkpoints):
            command[4:] = ["train", "--config", str(attempt.folder / CONFIG), "--force"]
            fixed = {"run.name": paths.name, "run.root": str(paths.root), "run.seed": seed, **copied(attempt)}
            for key, value in fixed.items():
                command += ["--set", f"{key}={value}"]
        where = {**os.environ, "PYTHONPATH": str((attempt.folder / SOURCE).resolve())}
        self._run(command, where, Path(), attempt.folder / f"{RUNS}-{paths.name}.txt")
        if not is_trained(paths, last, last):
            message = f"it has not trained {paths.folder} to update {last:,} as this hmx reads it"
            raise HmxError(message, "try a checkout of this version of hmx", ExitCode.CHECK_FAILED)

    def _run_command(self, attempt: Attempt, seed: int) -> None:
        """Run the command of another trainer."""
        folder = attempt.run(seed).folder
        if (folder / SCORE).exists():
            return
        with writing("the run", folder, ExitCode.ARTEFACT):
            if os.path.lexists(folder):
                shutil.rmtree(folder)  # of a command that was killed
            folder.mkdir()
        file = folder / RESULT
        words_of = (word.replace("{seed}", str(seed)) for word in attempt.program.command)
        command = [word.replace("{file}", str(file.resolve())) for word in words_of]
        self._run(command, os.environ, Path(attempt.program.place), folder / _LOG)
        write_once(folder / SCORE, Score(read_result(file, self.gate.settings.objective.metric)))

    def _run(self, command: Sequence[str], environ: Mapping[str, str], place: Path, log: Path) -> None:
        """Run a command with its output in a file; the signals that this process gets are passed on to it.

        If this process is killed, the command is killed too, with all that it has started.

        Raises:
            StopNow: a signal stopped it.
            HmxError: it cannot run or fails (exit code 4), or hmx cannot write (3).
        """
        with writing("the output of a command", log, ExitCode.ARTEFACT), log.open("wb") as output:
            guard = Guard()
            try:
                process = subprocess.Popen(
                    command, cwd=place, env=environ, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                    start_new_session=True,  # a terminal would send it each signal too
                    pass_fds=[self.lock.handle],
                )  # fmt: skip
                guard.watch(process)
                with SignalGuard(lambda signum: _send(process, signum)) as signals:
                    try:
                        code = process.wait()
                    except BaseException:  # a second signal
                        _send(process, signal.SIGKILL)
                        raise
            except OSError as problem:
                message = f"cannot run {command[0]}: {words(problem)}"
                raise HmxError(message, "give the path of a program", ExitCode.CHECK_FAILED) from None
            finally:
                guard.close()
        if signals.requested is not None or code in _STOPPED:
            raise StopNow(signals.requested or signal.SIGINT)
        if code:
            said, full = _said(log), os.strerror(errno.ENOSPC)  # a full disk is not a fault of the program
            message = f"{f'signal {-code}' if code < 0 else f'exit code {code}'}: {said}"
            hint = f"its output is in {log}" + "; free some space, then continue" * (full in said)
            raise HmxError(message, hint, ExitCode.ARTEFACT if full in said else ExitCode.CHECK_FAILED)


def _line(gate: Ledger, attempt: Attempt, pairs: Sequence[SeedPair]) -> str:
    """Say what the last pair was, and the evidence after it."""
    last, most = pairs[-1], gate.settings.max_seeds
    values = f"{len(pairs)} of {most}, seed {last.seed}: baseline {last.baseline:.4g}, candidate {last.candidate:.4g}"
    return f"{values}; e-value {e_value(differences(gate, pairs)):.3g} of {1 / attempt.level:.3g}"


def _send(process: subprocess.Popen[bytes], signum: int) -> None:
    """Send a signal to a process and all that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signum)


def _said(log: Path) -> str:
    """Return the error in the output of a command, or its last line."""
    with log.open("rb") as file:
        file.seek(max(os.fstat(file.fileno()).st_size - _TAIL, 0))
        lines = file.read().decode(errors="replace").strip().splitlines()
    said = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return one_line(quoted((said or lines or ["it said nothing"])[0 if said else -1], _LONGEST))


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


def has_measured(gate: Ledger, attempt: Attempt, seed: int) -> bool:
    """Return whether the run of a seed has measured anything, so that a bad result may be why it failed."""
    paths = attempt.run(seed)
    if not attempt.program.command:
        return paths.metrics.exists() and paths.metrics.stat().st_size > 0
    with contextlib.suppress(HmxError):
        _number(paths.folder / RESULT, gate.settings.objective.metric)
        return True
    return False


def recorded_pairs(gate: Ledger, attempt: Attempt, most: int) -> list[SeedPair]:
    """Return the pairs whose runs are complete, from the first seed on without a gap, at most `most`."""
    pairs: list[SeedPair] = []
    while len(pairs) < most:
        seed = attempt.first_seed + len(pairs)
        try:
            pairs += _pairs(seed, *(values(gate, one, seed) for one in (gate.attempts[attempt.baseline], attempt)))
        except HmxError:
            break
    return pairs[:most]


def _pairs(first: int, before: Sequence[float], after: Sequence[float]) -> list[SeedPair]:
    """Pair the metrics of both sides, seed by seed from the first one on."""
    both = enumerate(zip(before, after, strict=True), first)
    return [SeedPair(seed=seed, baseline=one, candidate=other) for seed, (one, other) in both]


def same_states(one: RunPaths, other: RunPaths) -> bool:
    """Return whether the last checkpoints of two runs have equal states, bit for bit."""
    newest = [checkpoints.newest_intact(paths.checkpoints)[0] for paths in (one, other)]
    return newest[0] is not None and newest[1] is not None and equal_states(newest[0], newest[1])


def read_result(path: Path, metric: str) -> float:
    """Return the metric in the file of another trainer: a field of JSON, or the last tenth of a column of CSV.

    Raises:
        HmxError: there is no file, no such metric, or it is not finite (exit code 4).
    """
    value = _number(path, metric)
    if not math.isfinite(value):
        raise HmxError(f"it diverged: {metric} is {value}", "see its output", ExitCode.CHECK_FAILED)
    return value


def _number(path: Path, metric: str) -> float:
    """Return the metric as `read_result` does, also one that is not finite."""
    try:
        text = read_plain(path).decode()
    except (OSError, ValueError) as problem:
        message = f"it wrote no result that can be read: {words(problem)}"
        raise HmxError(message, "the command must write {file}", ExitCode.CHECK_FAILED) from None
    names, numbers = list[str](), list[Any]()
    try:
        found = json.loads(text)
        if isinstance(found, dict):
            names, numbers = list(found), [found.get(metric)]
    except (ValueError, RecursionError):
        with contextlib.suppress(csv.Error, KeyError):
            rows = csv.DictReader(io.StringIO(text))
            names = list(rows.fieldnames or ())
            column = [row[metric] for row in rows]
            numbers = column[-max(len(column) // 10, 1) :]
    try:
        return sum(map(float, numbers)) / len(numbers)
    except (TypeError, ValueError, ZeroDivisionError, OverflowError):
        near = nearest(metric, names)
        hint = f"did you mean {near}?" if near else "--metric NAME of a field that it writes"
        message = f"its result has no number {metric}; it has {', '.join(map(quoted, names[:8])) or 'nothing'}"
        raise HmxError(message, hint, ExitCode.CHECK_FAILED) from None
