"""`hmx train`: a new run, from its configuration to the table that compares it with random play."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from jax.sharding import Mesh

from hmx.algos.types import TrainState
from hmx.config import codec
from hmx.config.problem import line
from hmx.envs.registry import sizes_of
from hmx.errors import HmxError
from hmx.jobs import healthy
from hmx.jobs.eval_training import make_evaluations
from hmx.jobs.evaluate import make_player
from hmx.jobs.evaluation import RANDOM, PolicyStats, write_evaluation
from hmx.jobs.grad_training import make_reports
from hmx.jobs.saved_buffer import save_buffers
from hmx.jobs.worker import check_same_config, run_worker, start_workers
from hmx.records import atomic, layout
from hmx.records import meta as metas
from hmx.records.atomic import writing
from hmx.records.lock import RunLock
from hmx.records.meta import Meta
from hmx.records.own_environment import environment_facts, keep_environment
from hmx.records.paths import EVALUATION, RunPaths
from hmx.records.plain import JsonResult, ShortRepr
from hmx.registry.check import warnings as warnings_of
from hmx.registry.load import Loaded
from hmx.runs import reference as references
from hmx.runs import weights
from hmx.runs.cluster.group import ALONE, Group
from hmx.runs.compilation import CompileTimer, CompileTimes, enable_cache, processor
from hmx.runs.device_memory import naming_shortages
from hmx.runs.devices import device_name
from hmx.runs.event_files import check_installed
from hmx.runs.installed_sinks import installed_sinks
from hmx.runs.loop import LoopResult
from hmx.runs.lowered import arithmetic
from hmx.runs.memory import placed
from hmx.runs.session import Session, first_state, open_task
from hmx.runs.signals import StopNow, interruptible
from hmx.runs.sinks import Ending, Sink
from hmx.runs.training import Training, make_sinks
from hmx.runs.warm_start import Learned, read_learned, read_reference
from hmx.simulators.journal import SavedEpisodes
from hmx.simulators.pool import SimulatorFailed


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class TrainResult(JsonResult, ShortRepr):
    """How a run, or its resumption, ended."""

    run: Path
    env: str
    state: Literal["finished", "interrupted"]
    signum: int | None  # the first signal received, if any; also one that stopped the evaluation
    first_update: int  # update at which this process began
    updates: int
    total_updates: int
    env_steps: int  # per seed
    num_seeds: int
    seconds: float  # of this process inside compiled chunks, compilation excluded
    steps_per_sec: float  # of this process, over all seeds; 0 if it did no update
    evaluation: tuple[PolicyStats, ...]
    warnings: tuple[str, ...]
    resume_command: str
    device: str
    finding: Ending | None = None  # the finding of hmx doctor that ended it early; see `run.on_finding`
    branches: tuple[Path, ...] = ()  # after rollbacks: the run folders from the first one to `run`


def train(
    task: Loaded,
    *,
    sinks: Sequence[Sink] = (),
    force: bool = False,
    command_line: Sequence[str] = (),
    group: Group = ALONE,
) -> TrainResult:
    """Train a new run in its own folder.

    Args:
        task: the configuration of a new run, see `hmx.registry.load.bind`.
        sinks: receivers of records in addition to the local file, such as the console.
        force: whether a run of that name is deleted first.
        command_line: kept in meta.json.
        group: the processes of the run, each of which calls this with the same configuration.

    Raises:
        HmxError: the configuration cannot run or the run exists (exit code 2); nothing has been written then.
            Or there is not enough memory (2), the run folder cannot be written any more (3), an update brought
            numbers that are not finite (4), or a process of the group is gone (1).
        StopNow: a second signal; the last complete checkpoint is intact.
    """
    enable_cache()  # before the programs in it are used
    session = open_task(task)
    check_same_config(group, {"command": "train", **codec.flatten(codec.to_dict(session.cfg))})
    if not group.is_coordinator:
        return worker_result(group)
    healthy.check_alone(session.cfg.run, group)
    new, cfg = check_run(session), session.cfg
    stem = layout.stem_of(cfg.env.id, cfg.algo.name, cfg.run.seed)
    paths = layout.new_run(cfg.run.root, cfg.run.name, stem, force)
    with RunLock(paths):
        return start_run(new, paths, sinks=sinks, command_line=command_line, group=group)


class NewRun(NamedTuple):
    """A run that can start; nothing is computed or written yet."""

    session: Session
    learned: Learned | None  # what it starts from; None for random weights
    reference: Learned | None  # the policy that it is kept close to, if any
    notes: tuple[str, ...]  # warnings


def check_run(session: Session) -> NewRun:
    """Check what `open_task` has not checked yet, with the errors of `train`; nothing is written."""
    warning = enable_cache()
    session = placed(session)
    if session.cfg.run.tensorboard:
        check_installed()
    installed_sinks(session.cfg.run.sink)
    session, learned, reference, notes = read_networks(session)
    return NewRun(session, learned, reference, (*([warning] if warning else []), *notes))


def read_networks(session: Session) -> tuple[Session, Learned | None, Learned | None, list[str]]:
    """Read the networks of other runs; return the session with exact checkpoints, the networks, and warnings."""
    cfg = session.cfg
    session, learned, notes = read_learned(session) if cfg.run.init_from else (session, None, [])
    session, reference, more = read_reference(session) if cfg.ppo.ref else (session, None, [])
    return session, learned, reference, list(dict.fromkeys([*notes, *more]))


def start_run(
    new: NewRun,
    paths: RunPaths,
    *,
    sinks: Sequence[Sink] = (),
    command_line: Sequence[str] = (),
    group: Group = ALONE,
    until: int | None = None,
    evaluated: bool = True,
) -> TrainResult:
    """Train a new run in an empty run folder, whose lock the caller holds; `until` and `evaluated` as `run_session`."""
    session, learned = new.session, new.learned
    session = session.changed({"run.name": paths.name})

    def start() -> TrainState:
        state = first_state(session)
        if new.reference is not None:
            state = references.with_reference(state, new.reference)
        return state if learned is None else weights.replace(state, learned)

    with writing("the run folder", paths.folder):
        meta = new_meta(session, command_line)
        if new.reference is not None:
            references.write(session, paths, meta.run_id, new.reference)
        write_run(session, paths, meta)
    cautions = warnings_of(session.cfg, sizes_of(session.env))
    # The numbers shown are the actual ones in any case, so rounding needs no warning.
    shown = (line(problem) for problem in cautions if problem.code != "rounded_up")
    sink_group = make_sinks(session.cfg.run, paths, sinks, (*new.notes, *shown))
    return run_session(Training(session, paths, meta, sink_group, group), start, until=until, evaluated=evaluated)


def new_meta(session: Session, command_line: Sequence[str]) -> Meta:
    """Return the meta data of a run that starts now."""
    cfg, made = session.cfg, made_on(session.mesh)
    digests = codec.digest(cfg), codec.shape_digest(cfg)
    meta = metas.collect(made["device"], command_line, *digests, codec.to_toml(cfg))
    return dataclasses.replace(meta, environment=environment_facts(cfg.env), **made)


def made_on(mesh: Mesh | None) -> dict[str, Any]:
    """Return the fields of meta.json about machine and programs: where all are equal, equal runs are equal in bits."""
    return {
        "device": device_name(mesh),
        "processor": processor(),
        "versions": metas.versions(),
        "arithmetic": metas.sha256(repr(arithmetic())),
    }


def write_run(session: Session, paths: RunPaths, meta: Meta) -> None:
    """Write run.toml and meta.json, and keep a copy of a user's environment."""
    keep_environment(meta, paths)
    atomic.write_text(paths.config, metas.with_history(codec.to_toml(session.cfg), meta.resumes))
    metas.write(paths.meta, meta)


def run_session(
    training: Training,
    start: Callable[[], TrainState],
    first: int = 0,
    *,
    until: int | None = None,
    episodes: SavedEpisodes | None = None,
    evaluated: bool = True,
) -> TrainResult:
    """Run a session from update `first` to its end, evaluate, and close everything that was opened.

    With `until`, it stops after that update with a checkpoint, as if it had been interrupted there. Simulators continue
    the `episodes` of a checkpoint. A run that is not `evaluated` has no evaluation at its end.

    The caller holds the run's lock, and is the coordinator of the group.
    """
    session, paths, sink_group = training.session, training.paths, training.sink_group
    rows: tuple[PolicyStats, ...] = ()
    finished, ended = False, None
    with training:
        try:
            done = _train(training, start, first, until, episodes)
            finished = done.updates == session.sizes.num_updates
            if finished:
                with naming_shortages("saving the replay buffer"):
                    save_buffers(session, paths, done.state, done.updates, sink_group)
                with naming_shortages("evaluating"):
                    rows = _evaluate(training, done) if evaluated else ()
            end: Literal["finished", "interrupted"] = "finished" if finished else "interrupted"
            ended = None if finished or done.signum else _ended(training, done.updates)
            training.update_meta(state=end, memory_bytes=done.memory_bytes)
            sink_group.close("paused" if not finished and done.updates == until else end)
        except StopNow as stop:
            saved = any(paths.checkpoints.glob("[0-9]*"))
            stop.hint = f"hmx resume {paths.argument}" if saved else paths.start_over
            # The steps after the last update can be repeated; the run itself is complete without them.
            training.update_meta(state="finished" if finished else "interrupted")
            sink_group.close("aborted")
            raise
        except BaseException as error:
            if isinstance(error, SimulatorFailed) and any(paths.checkpoints.glob("[0-9]*")):
                error.hint += f"; the run is saved, and hmx resume {paths.argument} continues it"
            hint = error.hint if isinstance(error, HmxError) else ""
            training.update_meta(state="failed", message=" ".join(str(error).split())[:500], hint=hint[:500])
            # The first failure is the one to report.
            with contextlib.suppress(HmxError):
                sink_group.close("failed")
            raise
    return _result(training, done._replace(signum=done.signum or training.guard.requested), first, rows, ended)


def _ended(training: Training, update: int) -> Ending | None:
    """Return the finding that ended a run after an update, if any, and note it in meta.json."""
    ending, paths = training.sink_group.ending(), training.paths
    if ending is None:
        return None
    first = ending.since // training.session.sizes.batch_size + 1  # update with evidence, in a window of updates
    ending = dataclasses.replace(ending, healthy=healthy.last_healthy(paths, first - healthy.WINDOW))
    error = healthy.failure(paths, ending, update)
    training.update_meta(message=error.message[:500], hint=error.hint[:500])
    return ending


def _train(
    training: Training,
    start: Callable[[], TrainState],
    first: int,
    until: int | None,
    episodes: SavedEpisodes | None,
) -> LoopResult:
    """Make the first state, and run the updates; the workers of a simulator end with them."""
    session, sink_group = training.session, training.sink_group
    run = session.cfg.run
    sizes = (run.num_seeds, run.devices, run.on_nonfinite, session.sizes.updates_per_chunk)
    timer = CompileTimer("train", session.cfg, *sizes)
    sink_group.start(training.info(first, timer.last))
    sink_group.phase("compiling")
    sink_group.sinks.append(CompileTimes(timer))
    start_workers(training.group, session, training.paths, first)
    with naming_shortages("making the first state"):
        begun = interruptible(start)
    begun = training.begin(begun, episodes)
    reports = (*make_evaluations(session, training.guard, sink_group.warn), *make_reports(session))
    done = training.run(begun, first, reports, until)
    training.end_workers()
    return done


def worker_result(group: Group) -> TrainResult:
    """Run a worker, and return its view of the run at its end.

    Raises:
        HmxError: the run failed, or a process is gone.
    """
    return _result(*run_worker(group), ())


def _result(
    training: Training, done: LoopResult, first: int, rows: tuple[PolicyStats, ...], finding: Ending | None = None
) -> TrainResult:
    session, paths = training.session, training.paths
    return TrainResult(
        run=paths.folder,
        env=session.cfg.env.id,
        state="finished" if done.updates == session.sizes.num_updates else "interrupted",
        signum=done.signum,
        first_update=first,
        updates=done.updates,
        total_updates=session.sizes.num_updates,
        env_steps=done.updates * session.sizes.batch_size,
        num_seeds=session.cfg.run.num_seeds,
        seconds=done.seconds,
        steps_per_sec=done.steps / done.seconds if done.seconds else 0.0,
        evaluation=rows,
        warnings=tuple(training.sink_group.warnings),
        resume_command=f"hmx resume {paths.argument}",
        device=device_name(session.mesh),
        finding=finding,
    )


def _evaluate(training: Training, done: LoopResult) -> tuple[PolicyStats, ...]:
    """Evaluate random and trained play; a signal skips the rest, since the run itself is complete."""
    session, sink_group = training.session, training.sink_group
    episodes = session.cfg.run.eval_episodes
    rows: list[PolicyStats] = []
    if not episodes:
        return ()
    sink_group.phase("evaluating")
    play = make_player(session, episodes, session.task.simulations)
    for policy in (RANDOM, session.task.algorithm.evaluated_by):
        if done.signum is None and training.guard.requested is None:
            rows += play(done.state, policy, session.cfg.run.seed)
    try:
        write_evaluation(training.paths, training.meta.run_id, rows)
    except OSError as error:
        sink_group.warn(f"{training.paths.reports / EVALUATION} cannot be written: {error.strerror or error}")
    return tuple(rows)
