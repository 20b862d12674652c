"""`hmx train`: a new run, from its configuration to the table that compares it with random play."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from hmx.algos.search import simulations_of
from hmx.algos.types import TrainState
from hmx.config import codec
from hmx.config.fields import replace, values_of
from hmx.config.problem import line
from hmx.config.schema import Config
from hmx.envs.registry import sizes_of
from hmx.errors import HmxError
from hmx.jobs.evaluate import make_player
from hmx.jobs.evaluation import RANDOM, PolicyStats, write_evaluation
from hmx.jobs.grad_training import make_reports
from hmx.jobs.saved_buffer import places, save_buffers
from hmx.jobs.worker import check_same_config, run_worker, start_workers
from hmx.records import atomic, layout
from hmx.records import meta as metas
from hmx.records.atomic import writing
from hmx.records.lock import RunLock
from hmx.records.meta import Meta
from hmx.records.paths import EVALUATION, RunPaths
from hmx.records.plain import JsonValue, ShortRepr, plain_object
from hmx.registry.algorithms import Aspect, find_algorithm
from hmx.registry.check import warnings as warnings_of
from hmx.registry.derive import Derived
from hmx.registry.sizes import Sizes
from hmx.registry.user_code import hashes_of
from hmx.runs import reference as references
from hmx.runs.checkpoint import without_reference
from hmx.runs.cluster.group import ALONE, Group
from hmx.runs.compilation import CompileTimer, CompileTimes, enable_cache
from hmx.runs.device_memory import naming_shortages
from hmx.runs.devices import make_mesh
from hmx.runs.event_files import check_installed
from hmx.runs.loop import LoopResult
from hmx.runs.memory import memory_problem, placed, run_memory
from hmx.runs.memory_parts import Memory
from hmx.runs.programs import Programs
from hmx.runs.restoring import start_over
from hmx.runs.session import (
    MetaWriter,
    Session,
    device_name,
    environment_facts,
    first_state,
    info_of,
    keep_environment,
    make_saver,
    make_sinks,
    open_host,
    open_session,
    run_updates,
    state_bytes,
)
from hmx.runs.signals import SignalGuard, StopNow, interruptible
from hmx.runs.sinks import Sink, SinkGroup
from hmx.runs.warm_start import Learned, read_learned, read_reference, start_from
from hmx.simulators.journal import SavedEpisodes
from hmx.simulators.pool import SimulatorFailed

SCHEMA = 1


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class TrainResult(ShortRepr):
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
    auto_scale: tuple[str, ...]
    resume_command: str
    device: str

    def to_json(self) -> dict[str, JsonValue]:
        """Return a JSON object with stable keys."""
        evaluation: list[JsonValue] = [row.to_json() for row in self.evaluation]
        return {"schema": SCHEMA, **plain_object(self), "evaluation": evaluation}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """The plan of a run: nothing has been computed or written."""

    config: Config
    origins: dict[str, str]
    sizes: Derived
    run: Path
    exists: bool
    files: dict[str, str]  # what -> where
    state_bytes: int  # on the device, over all seeds; a checkpoint is about as large on disk
    checkpoint_bytes: int  # on disk, of those kept
    device: str
    auto_scale: tuple[str, ...]
    memory: Memory | None  # during an update; None if the run is too large to be traced
    replay_ratio: float | None  # how often a transition is trained on; None without replay
    warnings: tuple[str, ...]
    meaning: tuple[Aspect, ...]  # what the configuration comes to where implementations of its algorithm differ

    def to_json(self) -> dict[str, JsonValue]:
        """Return a JSON object with stable keys."""
        return {"schema": SCHEMA, **plain_object(self), **plain_object({"config": codec.to_dict(self.config)})}


def train(
    cfg: Config,
    *,
    origins: Mapping[str, str] | None = None,
    sizes: Sizes | None = None,
    sinks: Sequence[Sink] = (),
    force: bool = False,
    command_line: Sequence[str] = (),
    group: Group = ALONE,
) -> TrainResult:
    """Train a new run in its own folder.

    Args:
        cfg: the configuration; `ppo.auto_scale` is applied here.
        origins: of each value, for error messages and to decide what auto-scaling may change.
        sizes: of the environment, if the configuration was checked with them.
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
    session, scaled = prepare(cfg, origins=origins, sizes=sizes)
    cfg = session.cfg
    check_same_config(group, {"command": "train", **codec.flatten(codec.to_dict(cfg))})
    if not group.is_coordinator:
        return worker_result(group)
    new = check_run(session, scaled)
    paths = layout.new_run(cfg.run.root, cfg.run.name, new.stem, force)
    with RunLock(paths):
        return start_run(new, paths, sinks=sinks, command_line=command_line, group=group)


class NewRun(NamedTuple):
    """A run that can start; nothing is computed or written yet."""

    session: Session
    learned: Learned | None  # what it starts from; None for random weights
    reference: Learned | None  # the policy that it is kept close to, if any
    scaled: tuple[str, ...]  # changes that scaling made
    notes: tuple[str, ...]  # warnings
    stem: str  # of its default name


def check_run(session: Session, scaled: list[str]) -> NewRun:
    """Check what `prepare` has not checked yet, with the errors of `train`; nothing is written."""
    warning = enable_cache()
    session = placed(session)
    cfg = session.cfg
    if cfg.run.tensorboard:
        check_installed()
    session, learned, reference, notes = _read_networks(session)
    stem = layout.stem_of(cfg.env.id, cfg.algo.name, cfg.run.seed)
    return NewRun(session, learned, reference, tuple(scaled), (*([warning] if warning else []), *notes), stem)


def _read_networks(session: Session) -> tuple[Session, Learned | None, Learned | None, list[str]]:
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
) -> TrainResult:
    """Train a new run in an empty run folder, whose lock the caller holds.

    With `until`, the run stops after that update with a checkpoint, as if it had been interrupted there.
    """
    session, learned = new.session, new.learned
    session = session._replace(cfg=replace(session.cfg, {"run.name": paths.name}))
    run = session.cfg.run

    def start() -> TrainState:
        state = first_state(session)
        if new.reference is not None:
            state = references.with_reference(state, new.reference)
        return state if learned is None else start_from(state, learned)

    with writing("the run folder", paths.folder):
        meta = new_meta(session, command_line)
        if new.reference is not None:
            references.write(session, paths, meta.run_id, new.reference)
        write_run(session, paths, meta)
    sink_group = make_sinks(run, paths, sinks)
    for message in new.notes:
        sink_group.warn(message)
    for problem in warnings_of(session.cfg, sizes_of(session.env)):
        if problem.code != "rounded_up":  # the numbers shown are the actual ones in any case
            sink_group.warn(line(problem))
    return run_session(session, paths, meta, sink_group, start, first=0, scaled=new.scaled, group=group, until=until)


def plan(cfg: Config, *, origins: Mapping[str, str] | None = None, sizes: Sizes | None = None) -> Plan:
    """Plan a run with `cfg`; write nothing.

    Raises:
        HmxError: the configuration cannot run.
    """
    session, scaled = prepare(cfg, origins=origins, sizes=sizes)
    session, _, reference, notes = _read_networks(session)
    cfg = session.cfg
    stem = layout.stem_of(cfg.env.id, cfg.algo.name, cfg.run.seed)
    name = layout.planned_name(cfg.run.root, cfg.run.name, stem)
    paths = RunPaths(Path(cfg.run.root), name)
    entry = find_algorithm(cfg.algo.name)
    env_sizes = sizes_of(session.env)
    saved = state_bytes(without_reference(session.abstract))
    files = {
        "config": paths.config,
        "meta": paths.meta,
        "metrics": paths.metrics,
        "checkpoints": paths.checkpoints,
        "reports": paths.reports,
    }
    files |= {"reference": paths.reference} if reference is not None else {}
    files |= {f"buffer {i}" if i else "buffer": place for i, place in enumerate(places(cfg.replay, cfg.run, paths))}
    return Plan(
        config=replace(cfg, {"run.name": paths.name}),
        origins=dict(origins or {}),
        sizes=session.sizes,
        run=paths.folder,
        exists=paths.exists(),
        files={what: str(path) for what, path in files.items()},
        state_bytes=state_bytes(session.abstract),
        checkpoint_bytes=saved * min(cfg.run.keep + cfg.run.keep_best, session.sizes.num_checkpoints),
        device=device_name(make_mesh(cfg.run.devices, cfg.env.num_envs)),
        auto_scale=tuple(scaled),
        memory=run_memory(session),
        replay_ratio=entry.replay_ratio(cfg) if entry.replay_ratio else None,
        warnings=(*notes, *(line(problem) for problem in warnings_of(cfg, env_sizes)), *_refusal(session)),
        meaning=entry.aspects(cfg, env_sizes),
    )


def _refusal(session: Session) -> list[str]:
    problem = memory_problem(session)
    return [f"{problem.message}: train would refuse; {problem.hint}"] if problem else []


def prepare(
    cfg: Config,
    *,
    origins: Mapping[str, str] | None = None,
    sizes: Sizes | None = None,
    programs: Programs | None = None,
) -> tuple[Session, list[str]]:
    """Scale, build and check a new run; compute and write nothing.

    Returns:
        The session, whose configuration has the SHA-256 of all code of the user and every option of their code; and
        one line for each change that scaling made.

    Raises:
        HmxError: the configuration has problems, all of them named; or code of the user may not run or fails.
    """
    scaled = find_algorithm(cfg.algo.name).scale(cfg, origins)
    cfg = replace(scaled.config, hashes_of(values_of(scaled.config)))
    return open_session(cfg, origins=origins, sizes=sizes, programs=programs), scaled.changes


def new_meta(session: Session, command_line: Sequence[str]) -> Meta:
    """Return the meta data of a run that starts now."""
    cfg, device = session.cfg, device_name(session.mesh)
    digests = codec.digest(cfg), codec.shape_digest(cfg)
    meta = metas.collect(device, command_line, *digests, codec.to_toml(cfg))
    return dataclasses.replace(meta, environment=environment_facts(cfg.env))


def write_run(session: Session, paths: RunPaths, meta: Meta) -> None:
    """Write run.toml and meta.json, and keep a copy of a user's environment."""
    keep_environment(meta, paths)
    atomic.write_text(paths.config, metas.with_history(codec.to_toml(session.cfg), meta.resumes))
    metas.write(paths.meta, meta)


def run_session(
    session: Session,
    paths: RunPaths,
    meta: Meta,
    sink_group: SinkGroup,
    start: Callable[[], TrainState],
    *,
    first: int,
    scaled: tuple[str, ...] = (),
    group: Group = ALONE,
    until: int | None = None,
    episodes: SavedEpisodes | None = None,
) -> TrainResult:
    """Run a session from update `first` to its end, evaluate, and close everything that was opened.

    With `until`, it stops after that update with a checkpoint. Simulators continue the `episodes` of a checkpoint.

    The caller holds the run's lock, and is the coordinator of the group.
    """
    meta_writer = MetaWriter(paths, meta, sink_group)
    finished = False
    stopping = SignalGuard(lambda _: sink_group.phase_from_signal("stopping"))
    with stopping as guard, contextlib.ExitStack() as stack:
        try:
            run = session.cfg.run
            sizes = (run.num_seeds, run.devices, run.on_nonfinite, session.sizes.updates_per_chunk)
            timer = CompileTimer("train", session.cfg, *sizes)
            sink_group.start(info_of(session, paths, meta, first, timer.last))
            sink_group.phase("compiling")
            sink_group.sinks.append(CompileTimes(timer))
            start_workers(group, session, paths, first)
            with naming_shortages("making the first state"):
                begun = interruptible(start)
            host = open_host(session, guard, sink_group.warn)
            if host is not None:
                stack.callback(host.close)
                begun, note = host.begin(begun, episodes)
                meta_writer.workers_cpu = host.cpu_seconds
                if note:
                    sink_group.warn(note)
                    meta_writer.add_note(note)
            saver = make_saver(session, paths, meta_writer, sink_group, guard, host)
            reports, run_id = make_reports(session), meta.run_id
            done = run_updates(
                session, paths, begun, first, sink_group, guard, saver, reports, group, run_id, until, host
            )
            workers_cpu = meta_writer.workers_cpu()
            stack.close()
            meta_writer.workers_cpu = lambda: workers_cpu
            finished = done.updates == session.sizes.num_updates
            if finished:
                with naming_shortages("saving the replay buffer"):
                    save_buffers(session, paths, done.state, done.updates, sink_group)
            with naming_shortages("evaluating"):
                rows = _evaluate(session, paths, run_id, done, sink_group, guard) if finished else ()
            meta_writer.update(state="finished" if finished else "interrupted", memory_bytes=done.memory_bytes)
            sink_group.close("finished" if finished else "interrupted")
        except StopNow as stop:
            saved = any(paths.checkpoints.glob("[0-9]*"))
            stop.hint = f"hmx resume {paths.argument}" if saved else start_over(paths)
            # The steps after the last update can be repeated; the run itself is complete without them.
            meta_writer.update(state="finished" if finished else "interrupted")
            sink_group.close("aborted")
            raise
        except BaseException as error:
            if isinstance(error, SimulatorFailed) and any(paths.checkpoints.glob("[0-9]*")):
                error.hint += f"; the run is saved, and hmx resume {paths.argument} continues it"
            hint = error.hint if isinstance(error, HmxError) else ""
            meta_writer.update(state="failed", message=" ".join(str(error).split())[:500], hint=hint[:500])
            # The first failure is the one to report.
            with contextlib.suppress(HmxError):
                sink_group.close("failed")
            raise
    return _result(session, paths, done, sink_group, rows, first, done.signum or guard.requested, scaled)


def worker_result(group: Group) -> TrainResult:
    """Run a worker, and return its view of the run at its end.

    Raises:
        HmxError: the run failed, or a process is gone.
    """
    session, paths, done, first = run_worker(group)
    return _result(session, paths, done, SinkGroup([]), (), first, done.signum, ())


def _result(
    session: Session,
    paths: RunPaths,
    done: LoopResult,
    sink_group: SinkGroup,
    rows: tuple[PolicyStats, ...],
    first: int,
    signum: int | None,
    scaled: tuple[str, ...],
) -> TrainResult:
    return TrainResult(
        run=paths.folder,
        env=session.cfg.env.id,
        state="finished" if done.updates == session.sizes.num_updates else "interrupted",
        signum=signum,
        first_update=first,
        updates=done.updates,
        total_updates=session.sizes.num_updates,
        env_steps=done.updates * session.sizes.batch_size,
        num_seeds=session.cfg.run.num_seeds,
        seconds=done.seconds,
        steps_per_sec=done.steps / done.seconds if done.seconds else 0.0,
        evaluation=rows,
        warnings=tuple(sink_group.warnings),
        auto_scale=scaled,
        resume_command=f"hmx resume {paths.argument}",
        device=device_name(session.mesh),
    )


def _evaluate(
    session: Session, paths: RunPaths, run_id: str, done: LoopResult, sink_group: SinkGroup, guard: SignalGuard
) -> tuple[PolicyStats, ...]:
    """Evaluate random and trained play; a signal skips the rest, since the run itself is complete."""
    episodes = session.cfg.run.eval_episodes
    rows: list[PolicyStats] = []
    if not episodes:
        return ()
    sink_group.phase("evaluating")
    play = make_player(session, episodes, simulations_of(session.cfg))
    for policy in (RANDOM, find_algorithm(session.cfg.algo.name).evaluated_by):
        if done.signum is None and guard.requested is None:
            rows += play(done.state, policy, session.cfg.run.seed)
    try:
        write_evaluation(paths, run_id, rows)
    except OSError as error:
        sink_group.warn(f"{paths.reports / EVALUATION} cannot be written: {error.strerror or error}")
    return tuple(rows)
