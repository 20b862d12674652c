"""Make a gate, and try changes against its baseline."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from hmx.config.coerce import show
from hmx.config.fields import replace, values_of
from hmx.errors import ExitCode, HmxError, counted
from hmx.gates import programs, records
from hmx.gates.programs import Made, load_changed, lowered_digest
from hmx.gates.records import Attempt, GateRequest, GateSettings, GateVerdict, Ledger, read_gate
from hmx.gates.worker import PairTrainer, Show, Tell, recorded_pairs
from hmx.records.atomic import writing
from hmx.registry.check import error_of, known_problems
from hmx.registry.load import Loaded, bind
from hmx.reports.compare.request import EVALUATION
from hmx.runs.session import open_session, open_task
from hmx.runs.signals import StopNow
from hmx.stats.evidence import e_value, stakes
from hmx.study.create import base_config, objective_of
from hmx.study.records import write_once
from hmx.study.request import SearchRequest
from hmx.study.worker import check_versions


@dataclasses.dataclass(frozen=True)
class Change:
    """What to try; if all is empty, the attempt that has no verdict continues."""

    sets: Sequence[str] = ()  # of the form section.key=value
    flags: Mapping[str, object] = dataclasses.field(default_factory=dict)  # by dotted key
    source: Path | None = None  # a checkout of hmx
    command: Sequence[str] = ()  # of another trainer
    abandon: bool = False  # end the attempt that has no verdict, as undecided


def new_gate(folder: Path, request: GateRequest, loaded: Loaded | None = None, command: Sequence[str] = ()) -> Ledger:
    """Make a gate, whose baseline is a configuration or a command of another trainer.

    Raises:
        HmxError: an option is not valid, there is a gate, or the baseline cannot be built (exit code 2).
    """
    records.PLACES.check_name(folder)
    hint = f"use another name, or see what it has: hmx gate status {shlex.quote(str(folder))}"
    exists = HmxError(f"there is a gate {folder}", hint)
    if records.PLACES.is_one(folder):
        raise exists
    objective = objective_of(SearchRequest(
        metric=SearchRequest.metric if loaded and request.metric == records.DEFAULT_METRIC else request.metric,
        maximize=request.maximize or not (loaded or request.minimize), minimize=request.minimize,
    ))  # fmt: skip
    if command and (loaded or request.at):
        hint = "leave out each option of a run, also --preset, --config, --at"
        raise HmxError("a command has no options of hmx", hint)
    if loaded is None:
        (program, copies), seed = programs.of_command(command), 0
    else:
        (program, copies), seed = _first(loaded, request, objective.metric), loaded.config.run.seed
    settings = GateSettings(
        objective=objective, max_seeds=request.max_seeds, error=request.error, attempts=request.attempts,
        seeds=loaded.config.run.num_seeds if loaded else 1,
    )  # fmt: skip
    (level,), _ = stakes(settings.error, settings.attempts, ())
    _check_power(settings, level, "the first attempt", "--max-seeds {}, or a larger --error, or fewer --attempts")
    first = Attempt(
        number=0, program=program, baseline=0, first_seed=seed, level=0.0, versions=programs.versions(),
        folder=records.attempt_folder(folder, 0),
    )  # fmt: skip
    with writing("the gate", folder, ExitCode.ARTEFACT):
        folder.mkdir(parents=True, exist_ok=True)
    with records.alone(folder):
        if records.PLACES.is_one(folder):
            raise exists
        (first.folder / records.ATTEMPT).unlink(missing_ok=True)  # of a command that was killed
        programs.write_attempt(first, copies)
        write_once(folder / records.SETTINGS, settings)  # last: without it the folder is not a gate
    return read_gate(folder)


def _check_power(settings: GateSettings, level: float, what: str, hint: str) -> None:
    """Refuse (exit code 2) so few pairs that not even wins of all of them would keep a change."""
    enough = next(count for count in itertools.count(1) if e_value((), count) * level >= 1)
    if settings.max_seeds < enough:
        won = f"{counted(settings.max_seeds, 'won pair')} give {e_value((), settings.max_seeds):.3g} at most"
        raise HmxError(f"{what} needs an e-value of {1 / level:.3g}, and {won}", hint.format(enough))


def _first(loaded: Loaded, request: GateRequest, metric: str) -> Made:
    """Return the program of the first baseline."""
    cfg = base_config(loaded, metric == EVALUATION)
    cfg = replace(cfg, {"run.total_steps": request.at or cfg.run.total_steps})
    if problems := known_problems(cfg):
        option = "--at" if request.at else "--steps"
        origins = {**loaded.origins, **({"run.total_steps": option} if request.at else {})}
        failure = error_of(problems, values_of(cfg), origins)
        raise HmxError(failure.message.replace("--steps", option), failure.hint.replace("--steps", option))
    if more := -request.max_seeds % cfg.run.num_seeds:
        message = f"--max-seeds {request.max_seeds} is not a multiple of --seeds {cfg.run.num_seeds}"
        raise HmxError(message, f"--max-seeds {request.max_seeds + more}")
    open_session(cfg)  # its own checks
    return programs.of_config(Loaded(cfg), "the first baseline")


def try_change(
    gate: Ledger,
    change: Change,
    *,
    tell: Tell = lambda line: None,
    show: Show = lambda text, outside: contextlib.nullcontext(()),
    command_line: Sequence[str] = (),
) -> tuple[Ledger, Attempt]:
    """Return the gate and the attempt of a change after its verdict; one that was tried before has its verdict already.

    `tell`, `show` and `command_line` are those of `PairTrainer`.

    Raises:
        HmxError: the change is not valid (exit code 2), another process tries one (2), the baseline cannot run (4), or
            a file of the gate is damaged or cannot be written (3).
        StopNow: a signal stopped it; the same command continues.
    """
    with records.alone(gate.folder) as lock:
        gate = read_gate(gate.folder)
        for made in filter(None, (gate.baseline, gate.open)):
            hint = "install the same versions, or make another gate with hmx gate new"
            check_versions(f"attempt {made.number} of {gate.folder}", made.versions, programs.versions(), hint)
        attempt = _attempt(gate, change)
        if attempt.verdict is None:
            if change.abandon:
                pairs = recorded_pairs(gate, attempt, gate.settings.max_seeds)
                why = f"abandoned after {counted(len(pairs), 'pair')}"
                verdict = records.verdict_of(gate, pairs, "undecided", why, lost=True)
            else:
                trainer = PairTrainer(gate, lock, tell, show, command_line)
                try:
                    verdict = _without_training(gate, attempt) or trainer.verdict(attempt)
                except StopNow as stop:
                    stop.hint = f"continue with: hmx gate try {gate.argument}"
                    raise
            write_once(attempt.folder / records.VERDICT, verdict)
        gate = read_gate(gate.folder)
        return gate, gate.attempts[attempt.number]


def _attempt(gate: Ledger, change: Change) -> Attempt:
    """Return the attempt of a change: the one that is open or was made before, otherwise a new one."""
    now, baseline, given = gate.open, gate.baseline, any((change.sets, change.flags, change.source, change.command))
    if change.abandon and given:
        raise HmxError("--abandon ends an attempt and tries no change", f"hmx gate try {gate.argument} --abandon")
    if not given:
        if now is None:
            hint = f"hmx gate try {gate.argument} --help"
            raise HmxError("there is no attempt to continue or to abandon: each has a verdict", hint)
        return now
    programs.check_trusted(baseline)
    program, copies = _candidate(baseline, change, gate.settings.objective.metric)
    for one in gate.attempts[1:]:
        if one.baseline == baseline.number and one.program.digest == program.digest:
            return one
    if now is not None:
        hint = f"continue it: hmx gate try {gate.argument}; or end it: hmx gate try {gate.argument} --abandon"
        raise HmxError(f"attempt {now.number} has no verdict yet: {now.program.text}", hint)
    more = "make another gate, with an error budget of its own: hmx gate new --max-seeds {}"
    _check_power(gate.settings, gate.levels[-1], "the error budget is used up: the next attempt", more)
    number = len(gate.attempts)
    attempt = Attempt(
        number=number, program=program, baseline=baseline.number, first_seed=gate.next_seed,
        level=gate.levels[-1], versions=programs.versions(), folder=records.attempt_folder(gate.folder, number),
    )  # fmt: skip
    programs.write_attempt(attempt, copies)
    return attempt


def _candidate(baseline: Attempt, change: Change, metric: str) -> Made:
    """Return the program of a change."""
    if change.command and (change.sets or change.flags or change.source or not baseline.program.command):
        raise HmxError("a command has no options of hmx, and is compared with a command only", "hmx gate new --help")
    if change.command:
        return programs.of_command(change.command)
    if baseline.program.command:
        raise HmxError("the baseline is a command", "try another one: -- python train.py --seed {seed} --out {file}")
    before, loaded = load_changed(baseline).values, load_changed(baseline, change.sets, change.flags)
    programs.check_task(before, loaded.values, metric)
    if problems := known_problems(loaded.config):
        raise error_of(problems, loaded.values, loaded.origins)
    source = change.source or (baseline.folder / records.SOURCE if baseline.program.source else None)
    changed = {key: value for key, value in loaded.values.items() if value != before.get(key)}
    text = [f"{key}={show(value)}" for key, value in changed.items() if key not in programs.NO_PART]
    text += [f"--source {change.source}"] if change.source else []
    return programs.of_config(loaded, " ".join(text) or "nothing", source)


def _without_training(gate: Ledger, attempt: Attempt) -> GateVerdict | None:
    """Return the verdict of a candidate that needs no training: it cannot be built, or equals the baseline."""
    baseline, program = gate.attempts[attempt.baseline], attempt.program
    for one in (baseline, attempt):
        programs.check_files(one)
    if program.digest == baseline.program.digest:
        return records.verdict_of(gate, (), "same", records.MEANING["same"])
    if program.command or attempt.run(0).root.exists():
        return None
    before = _lowered(baseline) if program.options == baseline.program.options else ""
    try:
        if before and before == _lowered(attempt):
            return records.verdict_of(gate, (), "same", records.MEANING["same"])
        if not program.source:
            open_task(bind(load_changed(attempt)))
    except HmxError as problem:
        if problem.exit_code == ExitCode.ARTEFACT:
            raise
        return records.verdict_of(gate, (), "failed", problem.message)
    return None


def _lowered(attempt: Attempt) -> str:
    """Return the digest of the lowered programs of an attempt; "" if its hmx cannot tell."""
    if not attempt.program.source:
        return lowered_digest(load_changed(attempt))
    sets = [f"{key}={value}" for key, value in programs.copied(attempt).items()]
    where = str((attempt.folder / records.CONFIG).resolve())
    code = "from hmx.registry.load import load; from hmx.gates.programs import lowered_digest; "
    code += f"print('digest', lowered_digest(load(file={where!r}, environ={{}}, sets={sets!r})))"
    environ = {**os.environ, "PYTHONPATH": str((attempt.folder / records.SOURCE).resolve())}
    done = subprocess.run([sys.executable, "-P", "-c", code], env=environ, capture_output=True, text=True, check=False)
    return next((line.split()[-1] for line in done.stdout.splitlines() if line.startswith("digest ")), "")
