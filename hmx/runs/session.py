"""A run with everything it needs in memory: configuration, folder, environment and algorithm."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp

from hmx.agents import make_algorithm
from hmx.agents.types import Algorithm, TrainState
from hmx.config import codec
from hmx.config.derive import Derived, derive
from hmx.config.schema import Config
from hmx.env.protocol import Env
from hmx.env.registry import make_env
from hmx.errors import ExitCode, HmxError
from hmx.records import checkpoints as records
from hmx.records import meta as metas
from hmx.records.layout import RunPaths
from hmx.records.meta import Meta
from hmx.runs import checkpoint
from hmx.runs.loop import Loop, LoopResult, abstract_state, compile_chunk
from hmx.runs.signals import SignalGuard
from hmx.runs.sinks import Fanout, JsonlSink, RunInfo, Sink
from hmx.runs.wandb_sink import WandbSink


class Session(NamedTuple):
    """What a configuration becomes before anything is computed or written."""

    cfg: Config
    sizes: Derived
    env: Env
    algorithm: Algorithm
    abstract: TrainState  # shapes and dtypes of the state, with an axis of seeds where there are several


class Restored(NamedTuple):
    """A state read back from a run folder."""

    state: TrainState
    update: int
    damaged: tuple[tuple[int, str], ...]  # newer checkpoints that could not be used, and why


def open_session(cfg: Config) -> Session:
    """Builds environment and algorithm; `cfg` must have no problems.

    Raises:
        HmxError: the environment or the algorithm refuses the configuration.
    """
    env = make_env(cfg.env, cfg.reward)
    algorithm = make_algorithm(cfg, env)
    return Session(cfg, derive(cfg), env, algorithm, abstract_state(algorithm, cfg.run.seed, cfg.run.num_seeds))


def device_name() -> str:
    """The device that JAX computes on, in words, such as `cpu` or `NVIDIA H200 (1 of 1)`."""
    device = jax.devices()[0]
    return device.device_kind if device.platform == "cpu" else f"{device.device_kind} (1 of {jax.device_count()})"


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
    session: Session, paths: RunPaths, state: TrainState, first: int, fanout: Fanout, guard: SignalGuard, diary: Diary
) -> LoopResult:
    """Compiles the chunk and runs the updates from `first` to the end, saving as the configuration says."""
    cfg, sizes = session.cfg, session.sizes
    chunk = compile_chunk(session.algorithm, session.abstract, sizes.updates_per_chunk, cfg.run.num_seeds)
    digests = (codec.shape_digest(cfg), codec.digest(cfg))

    def save(state: TrainState, update: int) -> None:
        env_steps = update * sizes.batch_size
        checkpoint.save(paths.checkpoints, state, update, cfg.run.keep, env_steps, *digests)
        diary.note(update=update, env_steps=env_steps)

    loop = Loop(chunk, fanout, guard, save, cfg.run.seed, sizes.batch_size, cfg.run.checkpoint_every)
    return loop.run(state, first, sizes.num_updates)


def restore(session: Session, paths: RunPaths, update: int | None = None) -> Restored:
    """The state of the newest intact checkpoint, or of the one at `update`.

    Raises:
        HmxError: there is none, it is damaged, or it was written under another configuration (exit code 3).
    """
    path, broken = records.newest_intact(paths.checkpoints) if update is None else (_named(paths, update), {})
    if path is None:
        what = f"no checkpoint of {paths.folder} is intact" if broken else f"{paths.folder} has no checkpoint yet"
        hint = f"start over: hmx train --config {paths.config} --name {paths.name} --force"
        raise HmxError(what, hint, ExitCode.ARTEFACT)
    _check_configuration(session, paths, path)
    state = checkpoint.restore(path, session.abstract)
    return Restored(state, int(path.name), tuple((int(p.name), "; ".join(why[:2])) for p, why in broken.items()))


def _named(paths: RunPaths, update: int) -> Path:
    path = paths.checkpoint(update)
    known = records.listing(paths.checkpoints)
    if path not in known:
        names = ", ".join(p.name for p in known) or "none"
        raise HmxError(f"there is no checkpoint {path}", f"checkpoints of this run: {names}", ExitCode.ARTEFACT)
    if faults := records.faults(path):
        hint = "leave out --checkpoint to take the newest intact one"
        raise HmxError(f"checkpoint {path} is damaged: {'; '.join(faults[:2])}", hint, ExitCode.ARTEFACT)
    return path


def _check_configuration(session: Session, paths: RunPaths, path: Path) -> None:
    """A run.toml edited by hand must not quietly give saved numbers another meaning."""
    manifest = records.read_manifest(path)
    steps = manifest.update * session.sizes.batch_size
    if manifest.shape_digest and manifest.shape_digest != codec.shape_digest(session.cfg):
        what = "the network, the environment or the number of seeds"
    elif manifest.env_steps != steps:
        what = "env.num_envs or algo.num_steps"
    else:
        return
    # The leaves say more where they differ.
    problems = records.leaf_differences(manifest.leaves, checkpoint.describe(session.abstract))
    message = "\n".join([f"{paths.config} has changed {what} since checkpoint {manifest.update}", *problems[:8]])
    raise HmxError(message, "put run.toml back as it was; a new configuration needs a new run", ExitCode.ARTEFACT)


def state_bytes(state: TrainState) -> int:
    """Bytes of a state (arrays, or their shapes)."""
    plain = jax.eval_shape(lambda tree: jax.tree.map(_key_data, tree), state)
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(plain))


def _key_data(leaf: jax.Array) -> jax.Array:
    return jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf


def with_name(cfg: Config, paths: RunPaths) -> Config:
    """The configuration under the name the run really got."""
    return dataclasses.replace(cfg, run=dataclasses.replace(cfg.run, name=paths.name))
