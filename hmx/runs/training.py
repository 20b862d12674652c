"""Train the updates of a run: its checkpoints, its meta data and its sinks, until the end or a signal."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn, cast

from hmx.algos.types import TrainState
from hmx.config import codec
from hmx.config.schema import RunConfig
from hmx.records import meta as metas
from hmx.records.checkpoints import CheckpointInfo, Retention
from hmx.records.jsonl import Marker
from hmx.records.meta import Meta
from hmx.records.paths import CONFIG, META, RunPaths
from hmx.runs import checkpoint, devices, diagnosis
from hmx.runs.chunk import Chunk, compile_chunk
from hmx.runs.clock import RunClock
from hmx.runs.cluster.group import ALONE, Group
from hmx.runs.device_memory import naming_shortages
from hmx.runs.event_files import TensorboardSink
from hmx.runs.hosted import Host, compile_hosted
from hmx.runs.installed_sinks import installed_sinks
from hmx.runs.loop import Loop, LoopResult, NonFiniteUpdate, Record, Reports
from hmx.runs.saving import Saver
from hmx.runs.session import Session
from hmx.runs.signals import SignalGuard, StopNow, StopWaiting, beside, interruptible, watching
from hmx.runs.sinks import JsonlSink, RunInfo, Sink, SinkGroup
from hmx.runs.wandb_sink import WandbSink
from hmx.simulators.journal import SavedEpisodes

WORKER = Meta(created="", updated="")
"""The meta data of a process that writes none."""


def make_sinks(run: RunConfig, paths: RunPaths, more: Sequence[Sink], warnings: Iterable[str | None] = ()) -> SinkGroup:
    """Return the sinks of a run: the local file first, then those of the caller and of the configuration.

    They get the `warnings`, apart from empty ones.
    """
    wandb = []
    if run.wandb != "disabled":
        wandb.append(WandbSink("online" if run.wandb == "online" else "offline", run.wandb_project))
    events = [TensorboardSink()] if run.tensorboard else []
    sink_group = SinkGroup([JsonlSink(paths.metrics), *more, *wandb, *events, *installed_sinks(run.sink)])
    for text in filter(None, warnings):
        sink_group.warn(text)
    return sink_group


def open_host(session: Session, guard: SignalGuard, warn: Callable[[str], None]) -> Host | None:
    """Start the workers of a session; None if its environment is in JAX, so that none are needed.

    Raises:
        HmxError: a worker or a simulator fails.
    """
    cfg, spec, hosted = session.cfg, session.env.spec, session.algorithm.hosted
    if spec.simulator is None:
        return None
    assert hosted is not None  # others are refused when the configuration is checked
    return Host(spec, cfg.env, cfg.algo.num_steps, cfg.run.seed, hosted, lambda: guard.requested is not None, warn)


class Training:
    """A run that trains: its session and folder, who receives its records, and the signals that stop it.

    In a block of `with`, signals are received, and the workers of a simulator end with it. A failure to write meta.json
    is a warning only, since nothing depends on the file.

    Args:
        session: of the run.
        paths: of its folder.
        meta: of the run; `WORKER` for a process that writes nothing.
        sink_group: receives phases, records and warnings.
        group: the processes of the run.
    """

    def __init__(
        self, session: Session, paths: RunPaths, meta: Meta, sink_group: SinkGroup, group: Group = ALONE
    ) -> None:
        self.session, self.paths, self.meta, self.sink_group, self.group = session, paths, meta, sink_group, group
        self.guard = SignalGuard(lambda _: sink_group.phase_from_signal("stopping"))
        self._host: Host | None = None
        self._cpu_before = meta.cpu_seconds - time.process_time()
        self._workers_cpu = 0.0  # of workers that have ended

    def __enter__(self) -> Training:
        """Receive signals."""
        self.guard.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        """End the workers of a simulator, and receive no more signals."""
        try:
            self.end_workers()
        finally:
            self.guard.__exit__(*error)

    def info(self, first: int, compile_time: str) -> RunInfo:
        """Return the facts about the run that its sinks get."""
        sizes, cfg, meta = self.session.sizes, self.session.cfg, self.meta
        return RunInfo(
            name=self.paths.name,
            path=self.paths.folder,
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

    def cpu_seconds(self) -> float:
        """Return the processor time of the run until now, over all its processes."""
        workers = self._workers_cpu if self._host is None else self._host.cpu_seconds()
        return self._cpu_before + time.process_time() + workers

    def update_meta(self, **fields: object) -> None:
        """Change fields of the meta data, add the processor time, and write them."""
        self.meta = metas.changed(self.meta, cpu_seconds=self.cpu_seconds(), **fields)
        try:
            metas.write(self.paths.meta, self.meta)
        except OSError as error:
            self.sink_group.warn(f"cannot write {self.paths.meta}: {error.strerror or error}")

    def begin(self, state: TrainState, episodes: SavedEpisodes | None) -> TrainState:
        """Start the workers of a simulator, if it is one, with the `episodes` of a checkpoint; return the state."""
        host = self._host = open_host(self.session, self.guard, self.sink_group.warn)
        if host is None:
            return state
        state, note = host.begin(state, episodes)
        if note:
            self.sink_group.warn(note)
            *before, last = self.meta.resumes
            self.update_meta(resumes=(*before, dataclasses.replace(last, notes=(*last.notes, note))))
        return state

    def end_workers(self) -> None:
        """End the workers of a simulator."""
        host, self._host = self._host, None
        if host is not None:
            self._workers_cpu = host.cpu_seconds()
            host.close()

    def run(
        self, state: TrainState | None, first: int, reports: Sequence[Reports] = (), until: int | None = None
    ) -> LoopResult:
        """Run the updates from `first` to the end or to `until`, with checkpoints as configured.

        In a distributed run every process calls this and gets the whole final state. Workers pass no `state`.

        Raises:
            HmxError: see `Loop.run`; an update was not finite (exit code 4), or a process is gone.
            StopNow: a second signal arrived.
        """
        clock = RunClock.after(self.paths.metrics) if first else RunClock()
        session, group, mesh = self.session, self.group, self.session.mesh
        run, sizes = session.cfg.run, session.sizes
        loop = Loop(
            chunk=self._compile(partial(self._prepare_reports, reports, state, first)),
            hypers=session.algorithm.hypers,
            sink_group=self.sink_group,
            guard=self.guard,
            saver=self._saver(),
            refuse=self._refuse,
            seed=run.seed,
            steps_per_update=sizes.batch_size,
            checkpoint_every=run.checkpoint_every * (1 if self._host is None else sizes.updates_per_chunk),
            skips=run.on_nonfinite == "skip",
            reports=tuple(each._replace(measure=partial(self._measure, each.measure)) for each in reports),
            group=group,
            clock=clock,
            cpu_seconds=self.cpu_seconds,
        )
        with group.explaining():
            if mesh is not None and mesh.is_multi_process:
                state = devices.scatter(mesh, session.algorithm, state, session.abstract, run.num_seeds, group)
            else:
                state = devices.put(mesh, session.algorithm, cast(TrainState, state), run.num_seeds)
            done = loop.run(state, first, sizes.num_updates if until is None else min(until, sizes.num_updates))
            return done._replace(state=interruptible(lambda: devices.gather(mesh, done.state)))

    def _prepare_reports(self, reports: Sequence[Reports], state: TrainState | None, first: int) -> None:
        """Prepare the reports that follow update `first`; several processes and devices do so when they are due."""
        if state is None or self.group.count > 1 or self.session.mesh is not None:
            return
        for each in reports:
            if any(update in each.updates for update in range(first + 1, self.session.sizes.num_updates + 1)):
                each.prepare(state)

    def _compile(self, prepare: Callable[[], None]) -> Chunk:
        """Compile the chunk; if a signal ends the wait, return a chunk of 0 updates, so that the loop saves and ends.

        Several processes always wait, since they stop together. The chunks of a simulator are single updates.
        """

        def check() -> None:
            if self.group.count == 1 and self.guard.requested is not None:
                raise StopWaiting

        session, host, shared = self.session, self._host, self.session.shared
        run = session.cfg.run
        if host is None and shared is not None and shared.chunk is not None:
            return shared.chunk
        with naming_shortages("compiling"), watching(check):
            try:
                if host is not None:
                    steps = session.cfg.algo.num_steps
                    return compile_hosted(session.algorithm, host, session.abstract, steps, run.on_nonfinite)
                with beside(prepare):
                    chunk = compile_chunk(
                        session.algorithm,
                        session.abstract,
                        session.sizes.updates_per_chunk,
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

    def _measure(
        self, measure: Callable[[TrainState, int], list[Record]], state: TrainState, update: int
    ) -> list[Record]:
        whole = devices.gather(self.session.mesh, state)
        return measure(whole, update) if self.group.is_coordinator else []

    def _refuse(self, before: TrainState, refused: NonFiniteUpdate) -> NoReturn:
        whole = devices.gather(self.session.mesh, before)
        if not self.group.is_coordinator:
            self.group.wait_for_end()
        diagnosis.refuse(self.session, self.paths, self.meta.run_id, self.sink_group.warn, whole, refused)

    def _saver(self) -> Saver:
        """Return the saver of this process: a worker sends its part of the state, and writes nothing."""
        if not self.group.is_coordinator:
            return Saver(self._share)
        batch, marker = self.session.sizes.batch_size, Marker(self.paths.metrics)
        config = metas.with_history(codec.to_toml(self.session.cfg), self.meta.resumes)

        def written(update: int) -> None:
            self.update_meta(update=update, env_steps=update * batch)

        return Saver(partial(self._prepare, marker, config), written, self._on_slow)

    def _share(self, state: TrainState, update: int, score: float | None) -> Callable[[], None]:
        devices.replicate_locally(self.session.mesh, state)
        return lambda: None

    def _prepare(
        self, marker: Marker, config: str, state: TrainState, update: int, score: float | None
    ) -> Callable[[], Path]:
        """Copy a state, and return the function that writes it as a checkpoint."""
        env_steps, run = update * self.session.sizes.batch_size, self.session.cfg.run
        meta = metas.changed(self.meta, update=update, env_steps=env_steps, cpu_seconds=self.cpu_seconds())
        mark = None
        if self.sink_group.has(JsonlSink):  # otherwise the file ends before this state
            try:
                mark = marker.mark()
            except OSError as error:
                self.sink_group.warn(f"cannot read back {self.paths.metrics}: {error.strerror or error}")
        info = CheckpointInfo(
            run_id=meta.run_id,
            env_steps=env_steps,
            shape_digest=meta.shape_digest,
            config_digest=meta.config_digest,
            score=score,
            metrics=mark,
        )
        saved = checkpoint.snapshot(devices.replicate_locally(self.session.mesh, state))
        copies = partial(add_copies, config, meta, None if self._host is None else self._host.save())
        best = max(run.keep_best, run.on_finding == "rollback")
        keep = Retention(run.keep, best, self.session.sizes.num_updates, run.keep_middle_mb * 10**6)
        return partial(checkpoint.write, self.paths.checkpoints, saved, update, keep, info, copies)

    def _on_slow(self, message: str, stuck: bool) -> None:
        self.sink_group.warn(message)
        if stuck and self.guard.requested is not None:
            raise StopNow(self.guard.requested)


def add_copies(config: str, meta: Meta, write_more: Callable[[Path], None] | None, folder: Path) -> None:
    """Write the copies of run.toml and meta.json in a checkpoint, and the running episodes of simulators."""
    if write_more is not None:
        write_more(folder)
    (folder / CONFIG).write_text(config, encoding="utf-8")
    (folder / META).write_text(metas.to_text(meta), encoding="utf-8")
