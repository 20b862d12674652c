"""Restore the state of a run from its newest intact checkpoint, and check that it fits the configuration."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from hmx.agents.types import TrainState
from hmx.config import codec
from hmx.errors import ExitCode, HmxError
from hmx.records import checkpoints as records
from hmx.records import frozen
from hmx.records.checkpoints import Manifest
from hmx.records.paths import RunPaths
from hmx.runs import checkpoint, weights
from hmx.runs.checkpoint import migrate
from hmx.runs.session import Session


class Restored(NamedTuple):
    """A state read from a run folder."""

    state: TrainState
    update: int
    damaged: tuple[tuple[int, str], ...]  # newer checkpoints that could not be used, and why
    manifest: Manifest
    missing: int | None = None  # the newest checkpoint that meta.json names, where it is gone

    @property
    def warnings(self) -> list[str]:
        """Return a warning for each newer checkpoint that could not be used."""
        used = f"checkpoint {self.update} is used instead"
        gone = [f"checkpoint {self.missing} is missing; {used}"] if self.missing is not None else []
        return [*gone, *(f"checkpoint {update} is damaged ({why}); {used}" for update, why in self.damaged)]


def restore(session: Session, paths: RunPaths, update: int | None = None) -> Restored:
    """Restore the newest intact checkpoint, or the one of `update`.

    Raises:
        HmxError: there is none, or it is damaged, unreadable, of another run, of a later hmx, or of another
            configuration (exit code 3).
    """
    _check_folder(paths)
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
    _check_configuration(session, paths, manifest)
    state = checkpoint.restore(path, session.abstract)
    damaged = tuple((int(p.name), "; ".join(why[:2])) for p, why in broken.items())
    missing = _missing(paths, manifest.update, broken) if update is None else None
    return Restored(state, int(path.name), damaged, manifest, missing)


def restore_policy(session: Session, paths: RunPaths, update: int | None = None) -> Restored:
    """Restore a state to play with: as `restore` does, or of an exported policy in a folder without checkpoints.

    Of an exported policy, only what it needs is real: everything else in the state is 0.

    Raises:
        HmxError: see `restore`; the policy is damaged or does not fit the configuration (exit code 3).
    """
    if update is not None or paths.checkpoints.exists() or not paths.weights.is_file():
        return restore(session, paths, update)
    state, made_at = weights.read(session, paths.weights)
    return Restored(state, made_at, (), Manifest(update=made_at))


def _check_folder(paths: RunPaths) -> None:
    if paths.checkpoints.is_symlink() or (paths.checkpoints.exists() and not paths.checkpoints.is_dir()):
        what = "a link" if paths.checkpoints.is_symlink() else "a file"
        hint = "put the folder of checkpoints itself in its place"
        raise HmxError(f"{paths.checkpoints} is {what} instead of a folder", hint, ExitCode.ARTEFACT)


def _missing(paths: RunPaths, used: int, broken: dict[Path, list[str]]) -> int | None:
    known = frozen.known_meta(paths)
    if known is None or known.update <= used or any(int(path.name) >= known.update for path in broken):
        return None
    return known.update


def start_over(paths: RunPaths) -> str:
    """Return the hint for a run that has no checkpoint."""
    return f"start over: hmx train --config {paths.config} --name {paths.name} --force"


def _none(paths: RunPaths, broken: dict[Path, list[str]]) -> HmxError:
    hint = start_over(paths)
    if not broken:
        return HmxError(f"{paths.folder} has no checkpoint yet", hint, ExitCode.ARTEFACT)
    if any("belongs to another run" in why for faults in broken.values() for why in faults):
        hint = f"restore the checkpoints of this run, or its {paths.meta.name} from a checkpoint; or {hint}"
    lines = [f"  {p.name}: {'; '.join(why[:2])}" for p, why in broken.items()]
    shown = [*lines[:8], *([f"  and {len(lines) - 8} more"] if len(lines) > 8 else [])]
    return HmxError("\n".join([f"no checkpoint of {paths.folder} is intact:", *shown]), hint, ExitCode.ARTEFACT)


def _check_configuration(session: Session, paths: RunPaths, manifest: Manifest) -> None:
    """Refuse a run.toml that would give saved numbers another meaning."""
    steps = manifest.update * session.sizes.batch_size
    now = codec.shape_digest(session.cfg, manifest.schema)
    if manifest.shape_digest and manifest.shape_digest != now:
        what = "the network, the environment or the number of seeds"
    elif manifest.env_steps != steps:
        what = "env.num_envs or algo.num_steps"
    else:
        return
    # Where leaves differ, they say more.
    wanted = checkpoint.describe(session.abstract)
    problems = records.leaf_differences(tuple(migrate(manifest, wanted).leaves.values()), wanted)
    message = "\n".join([f"{paths.config} has changed {what} since checkpoint {manifest.update}", *problems[:8]])
    raise HmxError(message, "restore the old run.toml; a new configuration needs a new run", ExitCode.ARTEFACT)
