"""`hmx study work`: propose, train, promote and confirm until nothing is left to do.

Any number of workers do this on any number of hosts. They agree through files that are created once, and through the
locks of the run folders.
"""

from __future__ import annotations

import dataclasses
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from hmx.config.fields import get
from hmx.config.schema import Config
from hmx.errors import ExitCode, HmxError, counted, one_line
from hmx.jobs.resume import is_trained, train_to
from hmx.jobs.train import NewRun, check_run
from hmx.records import checkpoints, meta
from hmx.records.atomic import sweep
from hmx.records.frozen import read_config
from hmx.records.lock import RunInUse, RunLock, holding
from hmx.records.plain import JsonResult, JsonValue
from hmx.registry.derive import derive
from hmx.registry.load import Loaded, bind
from hmx.runs.programs import Programs
from hmx.runs.session import open_task
from hmx.runs.signals import SignalGuard, StopNow
from hmx.runs.sinks import Sink
from hmx.study.confirm import confirmations_due
from hmx.study.folder import folders_of, read_study
from hmx.study.halving import promotions, update_at
from hmx.study.kills import check_kills, forget_kills, note_kill
from hmx.study.measure import measure
from hmx.study.records import (
    CONFIRMED,
    PROPOSAL,
    Confirmation,
    RungResult,
    Study,
    Trial,
    confirmation_folder,
    promotion_file,
    rung_file,
    trial_folder,
    write_once,
)
from hmx.study.samplers import complete_revisions, known_before, next_turn, propose
from hmx.study.space import config_of, with_values
from hmx.study.state import Standing, standing

POLL = 2.0  # seconds between two looks at what other workers do

StepKind = Literal["rung", "failed", "refused", "promoted", "confirmed", "waiting"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkStep:
    """One step of a worker, for progress."""

    kind: StepKind
    trial: int = 0
    rung: int = 0
    update: int = 0
    values: dict[str, JsonValue] = dataclasses.field(default_factory=dict)
    objective: float | None = None
    message: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkResult(JsonResult):
    """What a worker did, and why it ended."""

    study: Path
    trained: int  # results of trials and confirmations that it wrote
    refused: int
    seconds: float
    signum: int | None  # the signal that stopped it; None if nothing is left to do
    standing: Standing  # of the study at its end


def ignore(step: WorkStep) -> None:
    """Take no notice of a step."""


def no_sinks() -> Sequence[Sink]:
    """Show no progress of runs."""
    return ()


def work(
    folder: str | Path,
    *,
    tell: Callable[[WorkStep], None] = ignore,
    sinks: Callable[[], Sequence[Sink]] = no_sinks,
    other_versions: bool = False,
    command_line: Sequence[str] = (),
) -> WorkResult:
    """Work on a study until nothing is left to do, or until a signal stops the worker after a checkpoint.

    Args:
        folder: study folder.
        tell: receives every step.
        sinks: makes the receivers of a run's records, in addition to its file.
        other_versions: whether to work although the study was made with other package versions.
        command_line: kept in the meta.json of each run.

    Raises:
        HmxError: the study is damaged or another hmx made it, the disk is full, or a run fails.
        StopNow: a second signal; the last complete checkpoint is intact.
    """
    study = read_study(folder)
    if not other_versions:
        hint = "install the same versions, or accept that results differ: --other-versions"
        check_versions(study.folder, study.settings.versions, meta.versions(), hint)
    for place in folders_of(study.folder):
        sweep(place)  # what killed workers have left
    with SignalGuard() as guard:
        worker = _Worker(study, guard, tell, sinks, command_line)
        try:
            return worker.run()
        except StopNow as stop:
            stop.hint = f"continue with: hmx study work {shlex.quote(str(study.folder))}"
            raise


def check_versions(what: object, made: Mapping[str, str], now: Mapping[str, str], hint: str) -> None:
    """Refuse (exit code 2) what was made with other package versions: results would not be comparable."""
    other = [
        f"{name} {made[name]:.40} is {now.get(name, 'missing')} here" for name in made if made[name] != now.get(name)
    ]
    if other:
        raise HmxError(f"{what} was made with other versions: {one_line(', '.join(other))}", hint)


class _Worker:
    """One worker: each method of `run` does at most one piece of work, and returns whether it did any."""

    def __init__(
        self,
        study: Study,
        guard: SignalGuard,
        tell: Callable[[WorkStep], None],
        sinks: Callable[[], Sequence[Sink]],
        command_line: Sequence[str],
    ) -> None:
        self._study = study
        self._guard = guard
        self._tell = tell
        self._sinks = sinks
        self._command_line = command_line
        self._programs = Programs()
        self._signum: int | None = None
        self._prepared: tuple[Config, NewRun] | None = None  # of the trial proposed last
        self._trained = 0
        self._refused = 0

    def run(self) -> WorkResult:
        begun, announced = time.monotonic(), ""
        while self._stopped is None:
            self._study = read_study(self._study.folder, self._study)
            if self._train() or self._promote() or self._propose() or self._confirm():
                continue
            held = self._tasks()
            if not held:
                break
            waits = f"for {counted(len(held), 'run')} of other workers, to continue them if these are killed"
            if waits != announced:
                self._tell(WorkStep(kind="waiting", message=waits))
                announced = waits
            self._wait()
        return WorkResult(
            study=self._study.folder, trained=self._trained, refused=self._refused, signum=self._stopped,
            seconds=time.monotonic() - begun, standing=standing(read_study(self._study.folder, self._study)),
        )  # fmt: skip

    @property
    def _stopped(self) -> int | None:
        return self._signum or self._guard.requested

    def _wait(self) -> None:
        end = time.monotonic() + POLL
        while time.monotonic() < end and self._guard.requested is None:
            time.sleep(0.1)

    def _tasks(self) -> list[Trial | Confirmation]:
        """Return all runs that have training to do, whether another worker does it or not."""
        return [run for run in self._study.runs if run.open]

    def _train(self) -> bool:
        """Train the first run that no other worker holds."""
        for run in self._tasks():
            try:
                if holding(run.paths).state == "held":
                    continue
                with RunLock(run.paths) as lock:
                    if not rung_file(run.folder, len(run.rungs)).exists():  # written since the study was read
                        self._train_locked(run, lock)
            except RunInUse:
                continue
            return True
        return False

    def _train_locked(self, run: Trial | Confirmation, lock: RunLock) -> None:
        study, rung, paths = self._study, len(run.rungs), run.paths
        config, values = config_of(study, run), study.by_number[run.number].values
        sizes, confirms = derive(config), isinstance(run, Confirmation)
        update = update_at(sizes.num_updates, 1.0 if confirms else study.settings.rungs[rung])
        kills = note_kill(paths) if lock.note else 0
        if checkpoints.listing(paths.checkpoints):
            _check_same(run, config, values)
        try:
            if not is_trained(paths, update, sizes.num_updates):
                check_kills(kills, study.settings.max_kills)
                ended = train_to(
                    lock, lambda: self._prepare(config), until=update, sinks=self._sinks(),
                    command_line=self._command_line, programs=self._programs,
                )  # fmt: skip
                self._signum = ended.signum
                if ended.updates < update:
                    return
            steps = update * sizes.batch_size
            result = measure(paths, study.settings.objective, rung, update, steps, config.run.num_seeds)
        except HmxError as problem:
            if problem.exit_code != ExitCode.CHECK_FAILED:
                raise
            result = _failure(run, sizes.batch_size, problem)
        write_once(rung_file(run.folder, rung), result)
        forget_kills(run.folder)
        self._trained += 1
        kind: StepKind = "failed" if result.failed else "confirmed" if confirms else "rung"
        self._tell(WorkStep(
            kind=kind, trial=run.number, rung=rung, update=result.update, values=values, objective=result.objective,
            message=result.failed,
        ))  # fmt: skip

    def _promote(self) -> bool:
        study = self._study
        for trial, promotion in promotions(study, complete_revisions(study)):
            if write_once(promotion_file(trial.folder, promotion.rung), promotion):
                self._tell(WorkStep(kind="promoted", trial=trial.number, rung=promotion.rung, values=trial.values))
            return True
        return False

    def _propose(self) -> bool:
        study = self._study
        turn = next_turn(study)
        seen = None if turn is None else known_before(study, turn)
        if turn is None or seen is None:
            return False
        _check_worthwhile(study)
        trial = dataclasses.replace(turn, values=propose(study, turn, seen), seen=seen)
        refused = self._refusal(trial.values)
        trial = dataclasses.replace(trial, refused=refused)
        if write_once(trial_folder(study.folder, turn.number) / PROPOSAL, trial) and refused:
            self._refused += 1
            self._tell(WorkStep(kind="refused", trial=turn.number, values=trial.values, message=refused))
        return True

    def _refusal(self, values: dict[str, JsonValue]) -> str:
        """Return why a trial cannot run; empty if it can."""
        try:
            config = with_values(self._study.configs, values)
            self._prepare(config)
        except HmxError as problem:
            if problem.exit_code != ExitCode.USAGE:
                raise
            # This raises where the values are not the reason, such as a missing package.
            open_task(bind(Loaded(self._study.base)))
            return problem.message
        return ""

    def _prepare(self, config: Config) -> NewRun:
        """Return the run of a configuration; the last one is kept."""
        if self._prepared is None or self._prepared[0] != config:
            self._prepared = (config, check_run(open_task(bind(Loaded(config)), programs=self._programs)))
        return self._prepared[1]

    def _confirm(self) -> bool:
        for chosen in confirmations_due(self._study):
            write_once(confirmation_folder(self._study.folder, chosen.trial) / CONFIRMED, chosen)
            return True
        return False


def _check_same(run: Trial | Confirmation, config: Config, values: dict[str, JsonValue]) -> None:
    """Refuse a run whose configuration is not that of the trial (exit code 3)."""
    saved = read_config(run.paths)
    keys = [*(key for key in values if "." in key), "run.seed", "run.num_seeds", "run.total_steps"]
    other = [
        f"{key} is {get(saved, key)} instead of {get(config, key)}"
        for key in keys
        if get(saved, key) != get(config, key)
    ]
    if other:
        message = f"{run.folder} is not the run of trial {run.number}: {', '.join(other)}"
        hint = f"put the right folder there, or delete its checkpoints: rm -r {shlex.quote(str(run.paths.checkpoints))}"
        raise HmxError(message, hint, ExitCode.ARTEFACT)


def _failure(run: Trial | Confirmation, batch_size: int, problem: HmxError) -> RungResult:
    """Return the result of a run that cannot continue; the same in equal studies."""
    newest, _ = checkpoints.newest_intact(run.paths.checkpoints)
    update = int(newest.name) if newest else 0
    return RungResult(
        rung=len(run.rungs), update=update, env_steps=update * batch_size, per_seed=(), objective=None,
        failed=problem.message.replace(str(run.folder), run.folder.name),
    )  # fmt: skip


def _check_worthwhile(study: Study) -> None:
    """Refuse to continue (exit code 2) a study that has failed, as after many refused proposals in a row."""
    now = standing(study)
    if now.state == "failed":
        raise HmxError(f"{study.folder} has failed: {now.reason}", f"{now.next.text}: {now.next.command}")
