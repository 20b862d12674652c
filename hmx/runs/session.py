"""Open a run with its environment and algorithm, and run its updates."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, cast

import jax
from jax.sharding import Mesh

from hmx.algos.build import make_algorithm
from hmx.algos.types import Algorithm, TrainState
from hmx.config import codec
from hmx.config.fields import replace, values_of
from hmx.config.files import Unreadable, read_plain
from hmx.config.references import names_code
from hmx.config.schema import Config, EnvConfig, RunConfig
from hmx.config.textfile import quoted
from hmx.envs.protocol import Env, EnvSpec, playable
from hmx.envs.registry import build_env, sizes_of
from hmx.errors import counted
from hmx.records import atomic
from hmx.records import meta as metas
from hmx.records.checkpoints import CheckpointInfo
from hmx.records.jsonl import Marker
from hmx.records.meta import Meta
from hmx.records.paths import CONFIG, META, RunPaths
from hmx.registry.algorithms import find_algorithm
from hmx.registry.check import check
from hmx.registry.derive import Derived, derive
from hmx.registry.environments import exists, find_source, known_sizes
from hmx.registry.load import DEFAULT
from hmx.registry.observations import is_image
from hmx.registry.sizes import Sizes
from hmx.registry.user_code import CodeChanged, code_file, complete_options
from hmx.runs import checkpoint, devices
from hmx.runs.chunk import Chunk, compile_chunk
from hmx.runs.cluster.group import ALONE, Group
from hmx.runs.compilation import run_in_calling_thread
from hmx.runs.device_memory import naming_shortages
from hmx.runs.diagnosis import DiagnosisContext, refuse
from hmx.runs.event_files import TensorboardSink
from hmx.runs.hosted import Host, compile_hosted
from hmx.runs.loop import (
    Loop,
    LoopResult,
    NonFiniteUpdate,
    Record,
    Reports,
    RunClock,
    abstract_state,
    compile_init,
    train_keys,
)
from hmx.runs.lowered import LoweredPrograms, lowered_programs
from hmx.runs.programs import Programs, SharedPrograms, program_key
from hmx.runs.saving import Saver
from hmx.runs.signals import SignalGuard, StopNow, StopWaiting, interruptible, watching
from hmx.runs.sinks import JsonlSink, RunInfo, Sink, SinkGroup
from hmx.runs.wandb_sink import WandbSink

_SHOWN_LINES = 12  # of the difference between two versions of an environment
_MAX_COMPARED = 1 << 16  # bytes of each version: the time of a comparison grows faster than its size


class Session(NamedTuple):
    """The environment, the algorithm and the sizes of a configuration; nothing is computed or written yet."""

    cfg: Config
    sizes: Derived
    env: Env
    algorithm: Algorithm
    abstract: TrainState  # shapes and dtypes of the state, with an axis of seeds if there are several
    mesh: Mesh | None = None  # the devices that train it; None for one device, or if it is only played
    shared: SharedPrograms | None = None  # with other runs of this process
    lowered: LoweredPrograms | None = None  # on disk, if its programs may be kept there


def open_session(
    cfg: Config,
    paths: RunPaths | None = None,
    *,
    origins: Mapping[str, str] | None = None,
    sizes: Sizes | None = None,
    programs: Programs | None = None,
) -> Session:
    """Build the environment and the algorithm of a configuration, and check it.

    Args:
        cfg: the configuration.
        paths: the run that it is of; its copy of the user's environment file shows what has changed.
        origins: where each value came from, for error messages.
        sizes: of the environment, if the configuration was checked with them.
        programs: of earlier runs, which are used where they fit.

    Returns:
        The session; its configuration has every option that the user's code declares.

    Raises:
        HmxError: the configuration has problems, all of them named; or the user's code has changed, may not run or
            fails.
    """
    try:
        checked, env = build_and_check(cfg, origins=origins, sizes=sizes)
    except CodeChanged as problem:
        raise _with_lines(problem, paths) from None
    return make_session(checked, env, programs)


def build_and_check(
    cfg: Config, *, origins: Mapping[str, str] | None = None, sizes: Sizes | None = None
) -> tuple[Config, Env]:
    """Build the environment of a configuration, and check the configuration once: as soon as the sizes are known.

    Args:
        cfg: the configuration.
        origins: where each value came from, for error messages.
        sizes: of the environment, if the configuration was checked with them; None if it was not checked.

    Returns:
        The configuration with every option that the user's code declares, and the environment. Unless configured
        otherwise, images are read by a `cnn`, and policy and value have separate networks where the value reads more.

    Raises:
        HmxError: see `open_session`.
    """
    known = known_sizes(cfg.env)
    if sizes is None and (known or not exists(cfg.env.id)):
        check(cfg, known, origins)
    cfg = complete_options(cfg)
    env, complete = build_env(cfg.env, cfg.reward)
    cfg = dataclasses.replace(cfg, env=complete)
    if env.spec.simulator is not None:
        run_in_calling_thread()  # a policy acts in every step, and callbacks would wait for the threads of programs
        env = _of_simulator(env, cfg.algo.name, cfg.run.grad_report_every > 0)
    if origins is not None:
        cfg = replace(cfg, {key: value for key, value in _suited(env.spec).items() if origins.get(key) == DEFAULT})
    if sizes is None and known is None:
        check(cfg, sizes_of(env), origins)
    return cfg, env


def _of_simulator(env: Env, algorithm: str, reports: bool) -> Env:
    """Return the environment that an algorithm steps: copies, unless it has an update for simulators.

    Raises:
        HmxError: the simulator cannot be copied, and the algorithm or gradient reports in training need it.
    """
    if not find_algorithm(algorithm).simulators:
        return playable(env, algorithm)
    if reports:
        playable(env, "run.grad_report_every")
    return env


def _suited(spec: EnvSpec) -> dict[str, object]:
    """Return the options of a network that suit the observations better than the defaults."""
    suited: dict[str, object] = {}
    if is_image(spec.obs_shape):
        suited["net.kind"] = "cnn"
    if spec.value_only:
        suited["net.shared_torso"] = False
    return suited


def make_session(cfg: Config, env: Env, programs: Programs | None = None) -> Session:
    """Build the algorithm on an environment; `cfg` must have no problems."""
    algorithm, sizes = make_algorithm(cfg, env), derive(cfg)
    values, shared = values_of(cfg), None
    key = program_key(values, frozenset(algorithm.hypers(0)), sizes.updates_per_chunk)
    if programs is not None:
        shared = programs.of(key)
        if shared.first is not None:  # with its functions, whose traces JAX keeps; only the schedules are of this run
            algorithm = shared.first.algorithm._replace(hypers=algorithm.hypers)
            return shared.first._replace(cfg=cfg, sizes=sizes, algorithm=algorithm)
    lowered = lowered_programs(values, key)
    abstract = abstract_state(algorithm, cfg.run.seed, cfg.run.num_seeds, lowered)
    session = Session(cfg, sizes, env, algorithm, abstract, shared=shared, lowered=lowered)
    if shared is not None:
        shared.first = session
    return session


def environment_facts(env: EnvConfig) -> dict[str, str]:
    """Return the entry of meta.json for an environment of the user's: its id, path and SHA-256."""
    source = find_source(env.id)
    if source is None or not (source.own or names_code(env.id)) or not env.sha256:
        return {}
    reference = env.id if source.origin != "package" else f"{source.target}:{source.attribute}"
    return {"id": env.id, "path": str(code_file(reference, "env.id")), "sha256": env.sha256}


def keep_environment(meta: Meta, paths: RunPaths) -> None:
    """Copy the user's environment file into the run folder, so that later changes can be shown.

    Raises:
        OSError: it cannot be written.
    """
    if meta.environment:
        atomic.write_bytes(paths.environment, read_plain(Path(meta.environment["path"])))


def _with_lines(problem: CodeChanged, paths: RunPaths | None) -> CodeChanged:
    """Return the error with the lines that have changed, if the run has kept the file."""
    if paths is None:
        return problem
    with contextlib.suppress(OSError, UnicodeDecodeError, Unreadable):
        texts = (read_plain(file, _MAX_COMPARED).decode() for file in (paths.environment, problem.path))
        before, now = (text.splitlines() for text in texts)
        lines = [line for line in difflib.unified_diff(before, now, n=0, lineterm="") if line[:3] not in ("---", "+++")]
        shown = [quoted(line) for line in lines[:_SHOWN_LINES]]
        more = [f"and {counted(len(lines) - _SHOWN_LINES, 'more line')}"] if len(lines) > _SHOWN_LINES else []
        text = "".join(f"\n  {line}" for line in (*shown, *more))
        return CodeChanged(problem.path, problem.before, problem.now, text)
    return problem


def device_name(mesh: Mesh | None) -> str:
    """Return the name of the devices of a run, such as `cpu` or `NVIDIA H200 (1 of 1)`."""
    used = 1 if mesh is None else mesh.size
    device, there, processes = jax.devices()[0], jax.device_count(), jax.process_count()
    apart = f", {processes} processes" if processes > 1 else ""
    alone = device.platform == "cpu" and there == 1
    return str(device.device_kind) if alone else f"{device.device_kind} ({used} of {there}{apart})"


def make_sinks(run: RunConfig, paths: RunPaths, more: Sequence[Sink]) -> SinkGroup:
    """Return the sinks of a run: the local file first, then those of the caller and of the configuration."""
    wandb = []
    if run.wandb != "disabled":
        wandb.append(WandbSink("online" if run.wandb == "online" else "offline", run.wandb_project))
    events = [TensorboardSink()] if run.tensorboard else []
    return SinkGroup([JsonlSink(paths.metrics), *more, *wandb, *events])


def info_of(session: Session, paths: RunPaths, meta: Meta, first: int, compile_time: str = "") -> RunInfo:
    """Return the facts about a run that its sinks get."""
    sizes, cfg = session.sizes, session.cfg
    return RunInfo(
        name=paths.name,
        path=paths.folder,
        config=cfg,
        created=meta.created,
        first_update=first,
        total_updates=sizes.num_updates,
        steps_per_update=sizes.batch_size,
        num_seeds=cfg.run.num_seeds,
        device=meta.device,
        run_id=meta.run_id,
        compile_time=compile_time,
    )


class MetaWriter:
    """Update meta.json during a run; a failure is a warning only, since nothing depends on the file."""

    def __init__(self, paths: RunPaths, meta: Meta, sink_group: SinkGroup) -> None:
        self.meta = meta
        self._path = paths.meta
        self._sink_group = sink_group
        self._cpu_before = meta.cpu_seconds - time.process_time()
        self.workers_cpu: Callable[[], float] = lambda: 0.0  # of the workers of a simulator

    @property
    def cpu_seconds(self) -> float:
        """The processor time of the run until now, over all its processes."""
        return self._cpu_before + time.process_time() + self.workers_cpu()

    def add_note(self, text: str) -> None:
        """Add a note to the current resumption."""
        *before, last = self.meta.resumes
        self.update(resumes=(*before, dataclasses.replace(last, notes=(*last.notes, text))))

    def update(self, **fields: object) -> None:
        """Change fields of the meta data, add the processor time, and write them."""
        self.meta = metas.changed(self.meta, cpu_seconds=self.cpu_seconds, **fields)
        try:
            metas.write(self._path, self.meta)
        except OSError as error:
            self._sink_group.warn(f"cannot write {self._path}: {error.strerror or error}")


def run_updates(
    session: Session,
    paths: RunPaths,
    state: TrainState | None,
    first: int,
    sink_group: SinkGroup,
    guard: SignalGuard,
    saver: Saver,
    reports: Reports | None = None,
    group: Group = ALONE,
    run_id: str = "",
    until: int | None = None,
    host: Host | None = None,
) -> LoopResult:
    """Compile the chunk and run the updates from `first` to the end or to `until`, with checkpoints as configured.

    The workers of a simulator are those of `host`; its chunks are single updates.

    In a distributed run every process calls this and gets the whole final state. Workers pass no `state`, no sinks, and
    a saver from `worker_saver`.

    Raises:
        HmxError: see `Loop.run`; an update was not finite (exit code 4), or a process is gone.
        StopNow: a second signal arrived.
    """
    clock = RunClock.after(paths.metrics) if first else RunClock()
    cfg, sizes, algorithm, mesh = session.cfg, session.sizes, session.algorithm, session.mesh
    digests = codec.shape_digest(cfg), codec.digest(cfg)
    chunk = _compile(session, guard, group.count == 1, host)
    if reports is not None:
        reports = reports._replace(measure=partial(_measure, reports.measure, mesh, group))
    facts = (cfg.run.num_seeds, sizes.batch_size, *digests)
    context = DiagnosisContext(algorithm, paths, *facts, sink_group, run_id, cfg.env.id)
    loop = Loop(
        chunk=chunk,
        hypers=algorithm.hypers,
        sink_group=sink_group,
        guard=guard,
        saver=saver,
        refuse=partial(_refuse, context, mesh, group),
        seed=cfg.run.seed,
        steps_per_update=sizes.batch_size,
        checkpoint_every=cfg.run.checkpoint_every * (1 if host is None else sizes.updates_per_chunk),
        skips=cfg.run.on_nonfinite == "skip",
        reports=reports,
        group=group,
        clock=clock,
        cpu_seconds=time.process_time if host is None else lambda: time.process_time() + host.cpu_seconds(),
    )
    with group.explaining():
        if mesh is not None and mesh.is_multi_process:
            state = devices.scatter(mesh, algorithm, state, session.abstract, cfg.run.num_seeds, group)
        else:
            state = devices.put(mesh, algorithm, cast(TrainState, state), cfg.run.num_seeds)
        done = loop.run(state, first, sizes.num_updates if until is None else min(until, sizes.num_updates))
        return done._replace(state=interruptible(lambda: devices.gather(mesh, done.state)))


def open_host(session: Session, guard: SignalGuard, warn: Callable[[str], None]) -> Host | None:
    """Start the workers of a session; None if its environment is in JAX, so that none are needed.

    Raises:
        HmxError: a worker or a simulator fails.
    """
    cfg, spec = session.cfg, session.env.spec
    if spec.simulator is None:
        return None
    hosted = session.algorithm.hosted
    assert hosted is not None  # others are refused when the configuration is checked
    stopping = partial(_is_requested, guard)
    return Host(spec, cfg.env, cfg.algo.num_steps, cfg.run.seed, hosted, stopping, warn)


def _is_requested(guard: SignalGuard) -> bool:
    return guard.requested is not None


def _compile(session: Session, guard: SignalGuard, alone: bool, host: Host | None) -> Chunk:
    """Compile the chunk; if a signal ends the wait, return a chunk of 0 updates, so that the loop saves and ends.

    Several processes always wait, since they stop together.
    """

    def check() -> None:
        if alone and guard.requested is not None:
            raise StopWaiting

    run, sizes, shared = session.cfg.run, session.sizes, session.shared
    if host is None and shared is not None and shared.chunk is not None:
        return shared.chunk
    with naming_shortages("compiling"), watching(check):
        try:
            if host is not None:
                steps = session.cfg.algo.num_steps
                return compile_hosted(session.algorithm, host, session.abstract, steps, run.on_nonfinite)
            chunk = compile_chunk(
                session.algorithm,
                session.abstract,
                sizes.updates_per_chunk,
                run.num_seeds,
                run.on_nonfinite,
                session.mesh,
                session.lowered,
            )
        except StopWaiting:
            return Chunk.empty(run.num_seeds)
    if shared is not None:
        shared.chunk = chunk
    return chunk


def first_state(session: Session) -> TrainState:
    """Return the initial state of a session, by a program that runs may share."""
    run, shared = session.cfg.run, session.shared
    keys = train_keys(run.seed, run.num_seeds)
    init = None if shared is None else shared.init
    if init is None:
        init = compile_init(session.algorithm, keys, run.num_seeds, session.lowered)
    if shared is not None:
        shared.init = init
    state: TrainState = init(keys)
    return state


def _measure(
    measure: Callable[[TrainState, int], list[Record]], mesh: Mesh | None, group: Group, now: TrainState, update: int
) -> list[Record]:
    whole = devices.gather(mesh, now)
    return measure(whole, update) if group.is_coordinator else []


def _refuse(
    context: DiagnosisContext, mesh: Mesh | None, group: Group, before: TrainState, refused: NonFiniteUpdate
) -> NoReturn:
    whole = devices.gather(mesh, before)
    if not group.is_coordinator:
        group.wait_for_end()
    refuse(context, whole, refused)


def worker_saver(mesh: Mesh | None) -> Saver:
    """Return the saver of a worker: it sends its part of the state, and writes nothing."""

    def prepare(state: TrainState, update: int, score: float | None) -> Callable[[], None]:
        devices.replicate_locally(mesh, state)
        return lambda: None

    return Saver(prepare)


def make_saver(
    session: Session,
    paths: RunPaths,
    meta_writer: MetaWriter,
    sink_group: SinkGroup,
    guard: SignalGuard,
    host: Host | None = None,
) -> Saver:
    """Return the saver that writes the checkpoints of a run and records them in meta.json."""
    cfg, batch, mesh = session.cfg, session.sizes.batch_size, session.mesh
    marker = Marker(paths.metrics)
    config = metas.with_history(codec.to_toml(cfg), meta_writer.meta.resumes)

    def prepare(state: TrainState, update: int, score: float | None) -> Callable[[], Path]:
        cpu = meta_writer.cpu_seconds
        meta = metas.changed(meta_writer.meta, update=update, env_steps=update * batch, cpu_seconds=cpu)
        mark = None
        if sink_group.has(JsonlSink):  # otherwise the file ends before this state
            try:
                mark = marker.mark()
            except OSError as error:
                sink_group.warn(f"cannot read back {paths.metrics}: {error.strerror or error}")
        info = CheckpointInfo(
            run_id=meta.run_id,
            env_steps=update * batch,
            shape_digest=meta.shape_digest,
            config_digest=meta.config_digest,
            score=score,
            metrics=mark,
        )
        saved = checkpoint.snapshot(devices.replicate_locally(mesh, state))

        run = cfg.run
        copies = partial(add_copies, config, meta, None if host is None else host.save())
        return partial(checkpoint.write, paths.checkpoints, saved, update, run.keep, info, run.keep_best, copies)

    def on_slow(message: str, stuck: bool) -> None:
        sink_group.warn(message)
        if stuck and guard.requested is not None:
            raise StopNow(guard.requested)

    return Saver(prepare, lambda update: meta_writer.update(update=update, env_steps=update * batch), on_slow)


def add_copies(config: str, meta: Meta, write_more: Callable[[Path], None] | None, folder: Path) -> None:
    """Write the copies of run.toml and meta.json in a checkpoint, and the running episodes of simulators."""
    if write_more is not None:
        write_more(folder)
    (folder / CONFIG).write_text(config, encoding="utf-8")
    (folder / META).write_text(metas.to_text(meta), encoding="utf-8")


def state_bytes(state: Any) -> int:
    """Return the bytes of a state or a part of it (arrays, or their shapes)."""
    plain = jax.eval_shape(lambda tree: jax.tree.map(checkpoint.as_data, tree), state)
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(plain))
