"""Find a run by its name or path, open it, and restore its newest intact checkpoint that fits its configuration."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from hmx.algos.types import TrainState
from hmx.config import codec
from hmx.config.schema import Config
from hmx.errors import ExitCode, HmxError
from hmx.records import checkpoints as records
from hmx.records import frozen
from hmx.records.checkpoints import Manifest
from hmx.records.layout import find_policy, find_run
from hmx.records.paths import CHECKPOINTS, CONFIG, DEFAULT_ROOT, RunPaths
from hmx.registry.load import Loaded, load_stored
from hmx.runs import checkpoint, weights
from hmx.runs.checkpoint import migrate
from hmx.runs.loop import seed_state
from hmx.runs.session import Session, open_task
from hmx.simulators import journal
from hmx.simulators.journal import SavedEpisodes


class Restored(NamedTuple):
    """A state read from a run folder."""

    state: TrainState
    update: int
    damaged: tuple[tuple[int, str], ...]  # newer checkpoints that could not be used, and why
    manifest: Manifest
    missing: int | None = None  # the newest checkpoint that meta.json names, if it is gone
    episodes: SavedEpisodes | None = None  # of simulators

    @property
    def warnings(self) -> list[str]:
        """Return a warning for each newer checkpoint that could not be used."""
        used = f"checkpoint {self.update} is used instead"
        gone = [f"checkpoint {self.missing} is missing; {used}"] if self.missing is not None else []
        return [*gone, *(f"checkpoint {update} is damaged ({why}); {used}" for update, why in self.damaged)]


class ChosenCheckpoint(NamedTuple):
    """A checkpoint to restore; its fields are those of `Restored`."""

    path: Path
    manifest: Manifest
    damaged: tuple[tuple[int, str], ...]
    missing: int | None


def restore(session: Session, paths: RunPaths, update: int | None = None) -> Restored:
    """Restore the newest intact checkpoint, or the one of `update`.

    Raises:
        HmxError: there is none, or it is damaged, unreadable, of another run, of a later hmx, or of another
            configuration (exit code 3).
    """
    chosen = choose(paths, update)
    return restore_chosen(session, paths, chosen, codec.shape_digest(session.cfg, chosen.manifest.schema))


def choose(paths: RunPaths, update: int | None = None) -> ChosenCheckpoint:
    """Choose the newest intact checkpoint, or the one of `update`; errors as of `restore`."""
    if paths.checkpoints.is_symlink() or (paths.checkpoints.exists() and not paths.checkpoints.is_dir()):
        what = "a link" if paths.checkpoints.is_symlink() else "a file"
        hint = "put the checkpoint folder itself in its place"
        raise HmxError(f"{paths.checkpoints} is {what} instead of a folder", hint, ExitCode.ARTEFACT)
    run_id = frozen.run_id_of(paths)
    broken: dict[Path, list[str]] = {}
    path: Path | None
    if update is not None:
        path = records.intact(paths.checkpoints, update, run_id)
    else:
        path, broken = records.newest_intact(paths.checkpoints, run_id)
    if path is None:
        raise _none(paths, broken)
    manifest = records.read_manifest(path)
    damaged = tuple((int(p.name), "; ".join(why[:2])) for p, why in broken.items())
    missing = _missing(paths, manifest.update, broken) if update is None else None
    return ChosenCheckpoint(path, manifest, damaged, missing)


def restore_chosen(session: Session, paths: RunPaths, chosen: ChosenCheckpoint, shape_digest: str) -> Restored:
    """Restore a checkpoint of the configuration with a shape digest, which may not be that of the session.

    Raises:
        DoesNotFit: arrays of the session have other shapes (exit code 3).
        HmxError: the checkpoint is of another configuration, or cannot be read (3).
    """
    _check_configuration(session, shape_digest, paths, chosen.manifest)
    state = checkpoint.restore(chosen.path, session.abstract)
    source = session.env.spec.simulator
    episodes = None if source is None else journal.read(chosen.path, source.facts, session.cfg.env.num_envs)
    return Restored(state, int(chosen.path.name), chosen.damaged, chosen.manifest, chosen.missing, episodes)


def _missing(paths: RunPaths, used: int, broken: dict[Path, list[str]]) -> int | None:
    known = frozen.known_meta(paths)
    if known is None or known.update <= used or any(int(path.name) >= known.update for path in broken):
        return None
    return known.update


def _none(paths: RunPaths, broken: dict[Path, list[str]]) -> HmxError:
    hint = paths.start_over
    known = frozen.known_meta(paths)
    if not broken and known is not None and known.update:
        message = f"{paths.folder} has lost its checkpoints: {paths.meta.name} says that {known.update} was written"
        config, name = shlex.quote(str(paths.config)), shlex.quote(f"{paths.name}-2")
        hint = f"put them back into {paths.checkpoints}, or start a new run: hmx train --config {config} --name {name}"
        return HmxError(message, hint, ExitCode.ARTEFACT)
    if not broken:
        return HmxError(f"{paths.folder} has no checkpoint yet", hint, ExitCode.ARTEFACT)
    if any("belongs to another run" in why for faults in broken.values() for why in faults):
        hint = f"restore the checkpoints of this run, or its {paths.meta.name} from a checkpoint; or {hint}"
    lines = [f"{p.name}: {'; '.join(why[:2])}" for p, why in broken.items()]
    more = [f"and {len(lines) - 8} more"] if len(lines) > 8 else []
    message = "\n  ".join([f"no checkpoint of {paths.folder} is intact:", *lines[:8], *more])
    return HmxError(message, hint, ExitCode.ARTEFACT)


def _check_configuration(session: Session, shape_digest: str, paths: RunPaths, manifest: Manifest) -> None:
    """Refuse a run.toml that would give saved numbers another meaning."""
    steps = manifest.update * session.sizes.batch_size
    if manifest.shape_digest and manifest.shape_digest != shape_digest:
        what = "the network, the environment or the number of seeds"
    elif manifest.env_steps != steps:
        what = "env.num_envs or algo.num_steps"
    else:
        return
    # Differing leaves give a better message.
    wanted = checkpoint.describe(session.abstract)
    problems = records.leaf_differences(tuple(migrate(manifest, wanted)[0].values()), wanted)
    message = "\n".join([f"{paths.config} has changed {what} since checkpoint {manifest.update}", *problems[:8]])
    raise HmxError(message, "restore the old run.toml; a new configuration needs a new run", ExitCode.ARTEFACT)


class Run(NamedTuple):
    """A run, or checkpoints outside a run folder: its task, and what its checkpoints contain."""

    task: Loaded
    folder: Path  # of the run, or of the checkpoints
    paths: RunPaths | None  # None for checkpoints outside a run folder
    update: int | None = None  # of the checkpoint that its path leads to

    @classmethod
    def find(cls, path: str | Path, root: str | Path = DEFAULT_ROOT) -> Run:
        """Find the run of a name, or the run or the checkpoints at a path.

        Raises:
            HmxError: there are no checkpoints (exit code 3), or its configuration cannot be read.
        """
        given = Path(path).expanduser()
        if not _is_run(given) and given.is_dir():
            folder = given.resolve()
            if _is_checkpoint(folder) and folder.name.isdigit():
                return _of_checkpoints(folder.parent, folder)
            if _is_checkpoint(folder):  # a copy under another name
                return cls(_configuration(folder), folder, None, records.read_manifest(folder).update)
            if records.listing(folder):
                return _of_checkpoints(folder, None)
        return cls.of(find_policy(path, root))

    @classmethod
    def of(cls, paths: RunPaths) -> Run:
        """Return the run in a folder; an HmxError if its configuration cannot be read."""
        return cls(Loaded(frozen.read_config(paths)), paths.folder, paths)

    @property
    def cfg(self) -> Config:
        """Return its configuration."""
        return self.task.config

    @property
    def name(self) -> str:
        """Return its name, or that of the checkpoint folder."""
        return self.folder.name if self.paths is None else self.paths.name

    @property
    def run_id(self) -> str:
        """Return its id; "" if it is not known."""
        return frozen.run_id_of(self.paths) if self.paths else ""

    @property
    def checkpoints(self) -> Path:
        """Return the checkpoint folder."""
        return self.folder if self.paths is None else self.paths.checkpoints

    def updates(self) -> list[int]:
        """Return the updates of all complete checkpoints, oldest first."""
        if self.update is not None and _is_checkpoint(self.folder):
            return [self.update]
        return [int(path.name) for path in records.complete(self.checkpoints)]

    def changed(self, values: Mapping[str, object]) -> Run:
        """Return the run with other values of its configuration by dotted key."""
        return self._replace(task=self.task.changed(values))

    def open(self) -> Session:
        """Build its environment and algorithm, see `open_task`."""
        return open_task(self.task, self.paths)

    def agent(self, session: Session, index: int = 0, update: int | None = None) -> Restored:
        """Restore the state of one agent to play with; see `policy`."""
        restored = self.policy(session, update)
        return restored._replace(state=seed_state(restored.state, index, self.cfg.run.num_seeds))

    def policy(self, session: Session, update: int | None = None) -> Restored:
        """Restore a state to play with: that of a checkpoint, or an exported policy in a folder without checkpoints.

        An exported policy fills only the parts that acting needs: all other parts of the state are 0.

        Raises:
            HmxError: there is none, it is damaged, or it is of another configuration (exit code 3).
        """
        wanted = self.update if update is None else update
        paths = self.paths
        if paths is None:
            own = wanted is not None and wanted == self.update and _is_checkpoint(self.folder)
            path = records.checked(self.folder) if own else _pick(self.folder, wanted)
            manifest = records.read_manifest(path)
            return Restored(checkpoint.restore(path, session.abstract), manifest.update, (), manifest)
        if wanted is not None or paths.checkpoints.exists() or not paths.weights.is_file():
            return restore(session, paths, wanted)
        state, made_at = weights.read(session, paths.weights)
        return Restored(state, made_at, (), Manifest(update=made_at))


def _is_run(folder: Path) -> bool:
    return (folder / CONFIG).is_file() and not _is_checkpoint(folder)


def _is_checkpoint(folder: Path) -> bool:
    return (folder / records.MANIFEST).is_file()


def _of_checkpoints(folder: Path, chosen: Path | None) -> Run:
    """Return the checkpoints in a folder with the configuration of their run, or else the one that they contain."""
    update = int(chosen.name) if chosen else None
    if folder.name == CHECKPOINTS and _is_run(folder.parent):
        return Run.of(find_run(folder.parent))._replace(update=update)
    return Run(_configuration(chosen or _pick(folder, None)), folder, None, update)


def _configuration(folder: Path) -> Loaded:
    """Return the configuration that a checkpoint contains."""
    copy = folder / CONFIG
    if not copy.is_file():
        message = f"checkpoint {folder} contains no {CONFIG}"
        raise HmxError(message, "give the folder of its run", ExitCode.ARTEFACT)
    return load_stored(copy)


def _pick(folder: Path, update: int | None) -> Path:
    if update is not None:
        return records.intact(folder, update)
    newest, _ = records.newest_intact(folder)
    if newest is None:
        hint = "give the folder of a run, or of its checkpoints"
        raise HmxError(f"no checkpoint in {folder} is intact", hint, ExitCode.ARTEFACT)
    return newest
