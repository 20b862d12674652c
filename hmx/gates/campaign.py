"""Make a gate, and try changes against its baseline."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from hmx.config import codec
from hmx.config.fields import replace
from hmx.errors import ExitCode, HmxError, one_line
from hmx.gates import programs
from hmx.gates.programs import Files, load_changed, lowered_digest
from hmx.gates.records import (
    ATTEMPT,
    CONFIG,
    DEFAULT_METRIC,
    MEANING,
    SETTINGS,
    SOURCE,
    VERDICT,
    Attempt,
    GateProgram,
    GateSettings,
    GateVerdict,
    Ledger,
    SeedPair,
    attempt_folder,
    check_new,
    read_gate,
)
from hmx.gates.request import GateRequest
from hmx.gates.worker import PairTrainer, Tell, verdict_of
from hmx.records import atomic
from hmx.records.atomic import writing
from hmx.records.lock import RunInUse, RunLock
from hmx.records.paths import RunPaths
from hmx.registry.check import error_of, known_problems
from hmx.registry.load import Loaded, bind
from hmx.reports.compare.request import EVALUATION
from hmx.runs.session import open_session, open_task
from hmx.runs.sinks import Sink
from hmx.study.create import base_config, objective_of
from hmx.study.records import Objective, write_once
from hmx.study.request import SearchRequest
from hmx.study.worker import no_sinks

_DIGEST = "from hmx.registry.load import load; from hmx.gates.programs import lowered_digest"


@dataclasses.dataclass(frozen=True)
class Change:
    """What to try; if all is empty, the attempt that has no verdict continues."""

    sets: Sequence[str] = ()  # of the form section.key=value
    flags: Mapping[str, object] = dataclasses.field(default_factory=dict)  # by dotted key
    source: Path | None = None  # a checkout of hmx
    command: Sequence[str] = ()  # of another trainer
    abandon: bool = False  # end the attempt that has no verdict, as undecided

    def __bool__(self) -> bool:
        return bool(self.sets or self.flags or self.source or self.command)


def ignore(pair: SeedPair, e_value: float, needed: float) -> None:
    """Take no notice of a pair."""


def new_gate(folder: Path, request: GateRequest, loaded: Loaded | None = None, command: Sequence[str] = ()) -> Ledger:
    """Make a gate, whose baseline is a configuration or a command of another trainer.

    Raises:
        HmxError: an option is not valid, there is a gate, or the baseline cannot be built (exit code 2).
    """
    check_new(folder)
    if command or loaded is None:
        better = not request.minimize
        objective, seed, files = Objective(metric=request.metric, maximize=better), 0, dict[str, Files]()
        program, config = programs.of_command(command), ""
    else:
        objective = _objective(request)
        cfg = base_config(loaded, objective.metric == EVALUATION)
        cfg = replace(cfg, {"run.total_steps": request.at or cfg.run.total_steps})
        if problems := known_problems(cfg):
            raise error_of(problems, loaded.values, loaded.origins)
        if request.max_seeds % cfg.run.num_seeds:
            message = f"--max-seeds {request.max_seeds} is not a multiple of --seeds {cfg.run.num_seeds}"
            raise HmxError(message, f"--max-seeds {request.max_seeds + -request.max_seeds % cfg.run.num_seeds}")
        open_session(cfg)  # its own checks
        (program, files), seed, config = programs.of_config(Loaded(cfg), None), cfg.run.seed, codec.to_toml(cfg)
    settings = GateSettings(
        objective=objective, max_seeds=request.max_seeds, error=request.error, attempts=request.attempts
    )
    program = dataclasses.replace(program, text="the first baseline" if config else program.text)
    attempt = Attempt(number=0, program=program, baseline=0, first_seed=seed, level=0.0, versions=programs.versions())
    _write(attempt_folder(folder, 0), attempt, config, files)
    if not write_once(folder / SETTINGS, settings):  # last: without it the folder is not a gate
        check_new(folder)
    return read_gate(folder)


def _objective(request: GateRequest) -> Objective:
    metric = SearchRequest.metric if request.metric == DEFAULT_METRIC else request.metric
    return objective_of(SearchRequest(metric=metric, maximize=request.maximize, minimize=request.minimize))


def try_change(
    gate: Ledger,
    change: Change,
    *,
    tell: Tell = ignore,
    sinks: Callable[[], Sequence[Sink]] = no_sinks,
    command_line: Sequence[str] = (),
) -> tuple[Ledger, Attempt]:
    """Try a change against the baseline; one that was tried before has its verdict already.

    Args:
        gate: the gate.
        change: what to try.
        tell: receives each pair.
        sinks: makes the receivers of a run's records.
        command_line: kept in the meta.json of each run.

    Returns:
        The gate, and the attempt with its verdict.

    Raises:
        HmxError: the change is not valid (exit code 2), another process tries one (2), the baseline cannot run (4), or
            a file of the gate is damaged or cannot be written (3).
        Stopped: a signal stopped it; the same command continues.
    """
    with _alone(gate):
        gate = read_gate(gate.folder)
        _check_versions(gate)
        attempt = _attempt(gate, change)
        if change.abandon and attempt.verdict is None:
            _end(gate, attempt)
        elif attempt.verdict is None:
            gate = read_gate(gate.folder)
            PairTrainer(gate, tell, sinks, command_line).verdict(attempt)
        gate = read_gate(gate.folder)
        return gate, gate.attempts[attempt.number]


@contextlib.contextmanager
def _alone(gate: Ledger) -> Iterator[None]:
    """Keep other processes from trying changes inside the block."""
    try:
        with RunLock(RunPaths(gate.folder.parent, gate.folder.name)):
            yield
    except RunInUse as problem:
        hint = "wait until it ends: the verdict decides which baseline and which level the next attempt has"
        raise HmxError(f"another process tries a change: {problem.message}", hint) from None


def _attempt(gate: Ledger, change: Change) -> Attempt:
    """Return the attempt of a change: the one that is open or was made before, otherwise a new one."""
    now, baseline = gate.open, gate.baseline
    if change.abandon or not change:
        if now is None:
            hint = f"hmx gate try {gate.argument} --help"
            raise HmxError("there is no attempt to continue or to abandon: each has a verdict", hint)
        return now
    programs.check_trusted(baseline)
    program, files, config = _candidate(baseline, change, gate.settings.objective)
    before = [one for one in gate.attempts[1:] if one.baseline == baseline.number]
    for one in before:
        if one.program.digest == program.digest:
            return one
    if now is not None:
        hint = f"continue it: hmx gate try {gate.argument}; or end it: hmx gate try {gate.argument} --abandon"
        raise HmxError(f"attempt {now.number} has no verdict yet: {now.program.text}", hint)
    number = len(gate.attempts)
    attempt = Attempt(
        number=number, program=program, baseline=baseline.number, first_seed=gate.next_seed(baseline.first_seed),
        level=gate.levels[-1], versions=programs.versions(), folder=attempt_folder(gate.folder, number),
    )  # fmt: skip
    _write(attempt.folder, attempt, config, files)
    verdict = _known_verdict(gate, attempt)
    if verdict is not None:
        write_once(attempt.folder / VERDICT, verdict)
        attempt = dataclasses.replace(attempt, verdict=verdict)
    return attempt


def _candidate(baseline: Attempt, change: Change, objective: Objective) -> tuple[GateProgram, dict[str, Files], str]:
    """Return the program of a change, the files to copy, and its configuration, if it has one."""
    if change.command:
        if change.sets or change.flags or change.source:
            raise HmxError("a command has no options of hmx", "give the command alone, after --")
        return programs.of_command(change.command), {}, ""
    if baseline.program.command:
        raise HmxError("the baseline is a command", "try another one: -- python train.py --seed {seed} --out {file}")
    loaded = load_changed(baseline, change.sets, change.flags)
    before = load_changed(baseline).values
    programs.check_task(before, loaded.values, objective.metric)
    if problems := known_problems(loaded.config):
        raise error_of(problems, loaded.values, loaded.origins)
    source = change.source or (baseline.folder / SOURCE if baseline.program.source else None)
    program, files = programs.of_config(loaded, source)
    words = [f"{key}={text}" for key, text in programs.changes(before, loaded.values).items()]
    words += [f"--source {change.source}"] if change.source else []
    text = " ".join(words) or "nothing"
    return dataclasses.replace(program, text=text), files, codec.to_toml(loaded.config)


def _write(folder: Path, attempt: Attempt, config: str, files: Mapping[str, Files]) -> None:
    """Write an attempt with its configuration, if it has one; its own file is the last one."""
    programs.write_files(folder, files)
    if config:
        with writing("the attempt", folder, ExitCode.ARTEFACT):
            folder.mkdir(parents=True, exist_ok=True)
            atomic.write_text(folder / CONFIG, config)
    write_once(folder / ATTEMPT, attempt)
    programs.trust(dataclasses.replace(attempt, folder=folder))


def _known_verdict(gate: Ledger, attempt: Attempt) -> GateVerdict | None:
    """Return the verdict of a candidate that needs no training: it cannot be built, or equals the baseline."""
    baseline = gate.baseline
    if attempt.program.digest == baseline.program.digest:
        return verdict_of(gate, (), "same", MEANING["same"])
    if attempt.program.command:
        return None
    changed = programs.changed_options(load_changed(baseline).values, load_changed(attempt).values)
    before = "" if changed else _lowered(baseline)
    try:
        equal = before != "" and before == _lowered(attempt)
        if not equal and not attempt.program.source:
            open_task(bind(load_changed(attempt)))
    except HmxError as problem:
        if problem.exit_code == ExitCode.ARTEFACT:
            raise
        return verdict_of(gate, (), "failed", problem.message)
    return verdict_of(gate, (), "same", MEANING["same"]) if equal else None


def _lowered(attempt: Attempt) -> str:
    """Return the digest of the lowered programs of an attempt; "" if its hmx cannot tell."""
    programs.check_files(attempt)
    if not attempt.program.source:
        return lowered_digest(load_changed(attempt))
    sets = [f"{key}={value}" for key, value in programs.copied(attempt).items()]
    where = str((attempt.folder / CONFIG).resolve())
    code = f"{_DIGEST}; print('digest', lowered_digest(load(file={where!r}, environ={{}}, sets={sets!r})))"
    environ = {**os.environ, "PYTHONPATH": str((attempt.folder / SOURCE).resolve())}
    done = subprocess.run([sys.executable, "-P", "-c", code], env=environ, capture_output=True, text=True, check=False)
    return next((line.split()[-1] for line in done.stdout.splitlines() if line.startswith("digest ")), "")


def _end(gate: Ledger, attempt: Attempt) -> None:
    """End an attempt as undecided, with the pairs that are complete."""
    from hmx.gates.verify import recorded_pairs

    pairs = recorded_pairs(gate, attempt)
    verdict = verdict_of(gate, pairs, "undecided", f"abandoned after {len(pairs)} pairs")
    write_once(attempt.folder / VERDICT, verdict)


def _check_versions(gate: Ledger) -> None:
    """Refuse (exit code 2) to compare with a baseline, or to continue an attempt, of other versions of packages."""
    now = programs.versions()
    for made in filter(None, (gate.baseline, gate.open)):
        other = [f"{name} {old} is {now.get(name, 'missing')} here" for name, old in made.versions.items()
                 if old != now.get(name)]  # fmt: skip
        if other:
            message = f"attempt {made.number} was made with other versions: {one_line(', '.join(other))}"
            raise HmxError(message, "install the same versions, or make another gate with hmx gate new")
