"""A run with everything it needs in memory: configuration, folder, environment and algorithm."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, NoReturn

import jax
from jax.sharding import Mesh

from hmx.agents import make_algorithm
from hmx.agents.types import Algorithm, TrainState
from hmx.config import codec
from hmx.config.derive import Derived, derive
from hmx.config.schema import Config
from hmx.env.protocol import Env
from hmx.env.registry import make_env
from hmx.records import layout
from hmx.records import meta as metas
from hmx.records.jsonl import Marker
from hmx.records.layout import RunPaths
from hmx.records.meta import Meta
from hmx.runs import checkpoint, devices
from hmx.runs.chunk import compile_chunk
from hmx.runs.cluster.group import ALONE, Group
from hmx.runs.device_memory import out_of_memory
from hmx.runs.diagnosis import Kept, refuse
from hmx.runs.loop import Loop, LoopResult, Record, Refused, Reports, abstract_state
from hmx.runs.saving import Saver
from hmx.runs.signals import SignalGuard, interruptible
from hmx.runs.sinks import Fanout, JsonlSink, RunInfo, Sink
from hmx.runs.wandb_sink import WandbSink


class Session(NamedTuple):
    """What a configuration becomes before anything is computed or written."""

    cfg: Config
    sizes: Derived
    env: Env
    algorithm: Algorithm
    abstract: TrainState  # shapes and dtypes of the state, with an axis of seeds where there are several


def open_session(cfg: Config) -> Session:
    """Builds environment and algorithm; `cfg` must have no problems.

    Raises:
        HmxError: the environment or the algorithm refuses the configuration.
    """
    env = make_env(cfg.env, cfg.reward)
    algorithm = make_algorithm(cfg, env)
    return Session(cfg, derive(cfg), env, algorithm, abstract_state(algorithm, cfg.run.seed, cfg.run.num_seeds))


def device_name(cfg: Config | None = None) -> str:
    """The device or devices that a run computes on, in words, such as `cpu` or `NVIDIA H200 (1 of 1)`.

    Raises:
        HmxError: there are not as many devices as `cfg` asks for, or they do not divide the environments.
    """
    used = 1 if cfg is None else devices.num_devices(cfg)
    device, there, processes = jax.devices()[0], jax.device_count(), jax.process_count()
    apart = f", {processes} processes" if processes > 1 else ""
    alone = device.platform == "cpu" and there == 1
    return str(device.device_kind) if alone else f"{device.device_kind} ({used} of {there}{apart})"


def make_sinks(cfg: Config, paths: RunPaths, more: Sequence[Sink]) -> Fanout:
    """The sinks of a run: the local file first, then those the configuration and the caller ask for."""
    wandb = []
    if cfg.run.wandb != "disabled":
        wandb.append(WandbSink("online" if cfg.run.wandb == "online" else "offline", cfg.run.wandb_project))
    return Fanout([JsonlSink(paths.metrics), *more, *wandb])


def info_of(session: Session, paths: RunPaths, meta: Meta, first: int) -> RunInfo:
    """What the sinks are told."""
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
    )


class Diary:
    """Keeps meta.json in step with the run; failing to write it is a warning, since nothing depends on it."""

    def __init__(self, paths: RunPaths, meta: Meta, fanout: Fanout) -> None:
        self.meta = meta
        self._path = paths.meta
        self._fanout = fanout

    def note(self, **fields: object) -> None:
        """Changes fields of the meta data and writes them."""
        self.meta = metas.changed(self.meta, **fields)
        try:
            metas.write(self._path, self.meta)
        except OSError as error:
            self._fanout.warn(f"{self._path} cannot be written: {error.strerror or error}")


def run_updates(
    session: Session,
    paths: RunPaths,
    state: TrainState | None,
    first: int,
    fanout: Fanout,
    guard: SignalGuard,
    saver: Saver,
    reports: Reports | None = None,
    group: Group = ALONE,
) -> LoopResult:
    """Compiles the chunk and runs the updates from `first` to the end, saving as the configuration says.

    Of several processes all take part, and end with the whole state. Those that follow have no `state` to begin with,
    no sinks, and a saver from `follower`.

    Raises:
        HmxError: see `Loop.run`; also an update whose numbers are not finite (exit code 4), or a process that is gone.
        StopNow: a second signal.
    """
    cfg, sizes, algorithm = session.cfg, session.sizes, session.algorithm
    digests, mesh = (codec.shape_digest(cfg), codec.digest(cfg)), devices.make_mesh(cfg)
    with out_of_memory("compiling"):
        chunk = compile_chunk(
            algorithm, session.abstract, sizes.updates_per_chunk, cfg.run.num_seeds, cfg.run.on_nonfinite, mesh
        )
    if reports is not None:
        reports = reports._replace(measure=partial(_measure, reports.measure, mesh, group))
    kept = Kept(algorithm, paths, cfg.run.num_seeds, sizes.batch_size, *digests, fanout)
    loop = Loop(
        chunk=chunk,
        hypers=algorithm.hypers,
        fanout=fanout,
        guard=guard,
        saver=saver,
        refuse=partial(_refuse, kept, mesh, group),
        seed=cfg.run.seed,
        steps_per_update=sizes.batch_size,
        checkpoint_every=cfg.run.checkpoint_every,
        skips=cfg.run.on_nonfinite == "skip",
        reports=reports,
        group=group,
    )
    with group.explaining():
        if mesh is not None and mesh.is_multi_process:
            state = devices.hand_out(mesh, algorithm, state, session.abstract, cfg.run.num_seeds, group)
        else:
            state = devices.place(mesh, algorithm, state, cfg.run.num_seeds)
        done = loop.run(state, first, sizes.num_updates)
        return done._replace(state=interruptible(lambda: devices.gather(mesh, done.state)))


def _measure(
    measure: Callable[[TrainState, int], list[Record]], mesh: Mesh | None, group: Group, now: TrainState, update: int
) -> list[Record]:
    whole = devices.gather(mesh, now)
    return measure(whole, update) if group.leads else []


def _refuse(kept: Kept, mesh: Mesh | None, group: Group, before: TrainState, refused: Refused) -> NoReturn:
    whole = devices.gather(mesh, before)
    if not group.leads:
        group.wait_for_end()
    refuse(kept, whole, refused)


def follower(mesh: Mesh | None) -> Saver:
    """The saver of a process that follows: it hands over its part of the state, and writes nothing."""

    def prepare(state: TrainState, update: int, score: float | None) -> Callable[[], None]:
        devices.bring_together(mesh, state)
        return lambda: None

    return Saver(prepare)


def make_saver(session: Session, paths: RunPaths, diary: Diary, fanout: Fanout) -> Saver:
    """Writes the checkpoints of a run, and notes in meta.json how far they have come."""
    cfg, batch, mesh = session.cfg, session.sizes.batch_size, devices.make_mesh(session.cfg)
    marker, config = Marker(paths.metrics), codec.to_toml(cfg)

    def prepare(state: TrainState, update: int, score: float | None) -> Callable[[], Path]:
        meta = metas.changed(diary.meta, update=update, env_steps=update * batch)
        mark = None
        if fanout.has(JsonlSink):  # else the file ends before this state
            try:
                mark = marker.mark()
            except OSError as error:
                fanout.warn(f"{paths.metrics} cannot be read back: {error.strerror or error}")
        about = checkpoint.About(
            env_steps=update * batch,
            shape_digest=codec.shape_digest(cfg),
            config_digest=codec.digest(cfg),
            score=score,
            metrics=mark,
            copies={layout.CONFIG: config, layout.META: metas.to_text(meta)},
            keep_best=cfg.run.keep_best,
        )
        saved = checkpoint.snapshot(devices.bring_together(mesh, state))
        return partial(checkpoint.write, paths.checkpoints, saved, update, cfg.run.keep, about)

    return Saver(prepare, lambda update: diary.note(update=update, env_steps=update * batch))


def state_bytes(state: TrainState) -> int:
    """Bytes of a state (arrays, or their shapes)."""
    plain = jax.eval_shape(lambda tree: jax.tree.map(checkpoint.as_data, tree), state)
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(plain))


def with_name(cfg: Config, paths: RunPaths) -> Config:
    """The configuration under the name the run really got."""
    return dataclasses.replace(cfg, run=dataclasses.replace(cfg.run, name=paths.name))
