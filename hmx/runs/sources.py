"""Find checkpoints by path: a run, its folder of checkpoints, or a single checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from hmx.agents.types import TrainState
from hmx.config.load import load
from hmx.config.schema import Config
from hmx.errors import ExitCode, HmxError
from hmx.records import checkpoints as records
from hmx.records.frozen import read_config
from hmx.records.layout import find_policy, find_run
from hmx.records.paths import CHECKPOINTS, CONFIG, RunPaths
from hmx.runs import checkpoint
from hmx.runs.restoring import restore_policy
from hmx.runs.session import Session


class Source(NamedTuple):
    """Checkpoints with their configuration; `paths` is None for checkpoints outside of a run folder."""

    cfg: Config
    folder: Path  # of the run, or of the checkpoints
    paths: RunPaths | None
    update: int | None  # of the checkpoint that the path leads to

    @property
    def checkpoints(self) -> Path:
        """Return the folder of checkpoints."""
        return self.folder if self.paths is None else self.paths.checkpoints

    def updates(self) -> list[int]:
        """Return the updates of all complete checkpoints, oldest first."""
        return [int(path.name) for path in records.complete(self.checkpoints)]

    def state(self, session: Session, update: int | None) -> tuple[TrainState, int, list[str]]:
        """Restore a state; return it with its update and with warnings about newer checkpoints that cannot be used.

        Raises:
            HmxError: there is none, it is damaged, or it is of another configuration (exit code 3).
        """
        wanted = self.update if update is None else update
        if self.paths is not None:
            restored = restore_policy(session, self.paths, wanted)
            return restored.state, restored.update, restored.warnings
        path = _pick(self.folder, wanted)
        return checkpoint.restore(path, session.abstract), int(path.name), []


def find(path: str | Path, root: str | Path) -> Source:
    """Find the checkpoints at a path, or of a run given by name.

    Raises:
        HmxError: there are no checkpoints (exit code 3), or its configuration cannot be read.
    """
    given = Path(path).expanduser()
    if not _is_run(given) and given.is_dir():
        if (given / records.MANIFEST).is_file() and given.resolve().name.isdigit():
            return _of_checkpoint(given.resolve())
        if records.listing(given):
            return _of_folder(given.resolve())
    paths = find_policy(path, root)
    return Source(read_config(paths), paths.folder, paths, None)


def _is_run(folder: Path) -> bool:
    return (folder / CONFIG).is_file() and not (folder / records.MANIFEST).is_file()


def _of_checkpoint(folder: Path) -> Source:
    update = int(folder.name)
    if folder.parent.name == CHECKPOINTS and _is_run(folder.parent.parent):
        return _of_run(folder.parent.parent, update)
    return Source(_carried(folder), folder.parent, None, update)


def _of_folder(folder: Path) -> Source:
    if folder.name == CHECKPOINTS and _is_run(folder.parent):
        return _of_run(folder.parent, None)
    return Source(_carried(_pick(folder, None)), folder, None, None)


def _of_run(folder: Path, update: int | None) -> Source:
    paths = find_run(folder)
    return Source(read_config(paths), paths.folder, paths, update)


def _pick(folder: Path, update: int | None) -> Path:
    if update is None:
        newest, _ = records.newest_intact(folder)
        if newest is None:
            hint = "give the folder of a run, or of its checkpoints"
            raise HmxError(f"no checkpoint in {folder} is intact", hint, ExitCode.ARTEFACT)
        return newest
    return records.intact(folder, update)


def _carried(folder: Path) -> Config:
    """Read the configuration that a checkpoint contains."""
    if not (folder / CONFIG).is_file():
        hint = "give the folder of its run"
        raise HmxError(f"checkpoint {folder} contains no {CONFIG}", hint, ExitCode.ARTEFACT)
    return load(file=folder / CONFIG, environ={}).config
