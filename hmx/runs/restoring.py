"""The state of a run from the newest checkpoint that is whole, for the configuration it was made with."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from hmx.agents.types import TrainState
from hmx.config import codec
from hmx.errors import ExitCode, HmxError
from hmx.records import checkpoints as records
from hmx.records.checkpoints import Manifest
from hmx.records.layout import RunPaths
from hmx.runs import checkpoint
from hmx.runs.migrations import shape_keys
from hmx.runs.session import Session


class Restored(NamedTuple):
    """A state read back from a run folder."""

    state: TrainState
    update: int
    damaged: tuple[tuple[int, str], ...]  # newer checkpoints that could not be used, and why
    manifest: Manifest


def restore(session: Session, paths: RunPaths, update: int | None = None) -> Restored:
    """The state of the newest intact checkpoint, or of the one at `update`.

    Raises:
        HmxError: there is none, it is damaged, a later hmx wrote it, or it was written under another configuration
            (exit code 3).
    """
    _check_folder(paths)
    path, broken = records.newest_intact(paths.checkpoints) if update is None else (_named(paths, update), {})
    if path is None:
        raise _none(paths, broken)
    manifest = records.read_manifest(path)
    _check_configuration(session, paths, manifest)
    state = checkpoint.restore(path, session.abstract)
    damaged = tuple((int(p.name), "; ".join(why[:2])) for p, why in broken.items())
    return Restored(state, int(path.name), damaged, manifest)


def _check_folder(paths: RunPaths) -> None:
    if paths.checkpoints.is_symlink() or (paths.checkpoints.exists() and not paths.checkpoints.is_dir()):
        what = "a link" if paths.checkpoints.is_symlink() else "a file"
        hint = "put the folder of checkpoints itself in its place"
        raise HmxError(f"{paths.checkpoints} is {what} in place of a folder", hint, ExitCode.ARTEFACT)


def _none(paths: RunPaths, broken: dict[Path, list[str]]) -> HmxError:
    hint = f"start over: hmx train --config {paths.config} --name {paths.name} --force"
    if not broken:
        return HmxError(f"{paths.folder} has no checkpoint yet", hint, ExitCode.ARTEFACT)
    lines = [f"  {p.name}: {'; '.join(why[:2])}" for p, why in broken.items()]
    shown = [*lines[:8], *([f"  and {len(lines) - 8} more"] if len(lines) > 8 else [])]
    return HmxError("\n".join([f"no checkpoint of {paths.folder} is intact:", *shown]), hint, ExitCode.ARTEFACT)


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


def _check_configuration(session: Session, paths: RunPaths, manifest: Manifest) -> None:
    """A run.toml edited by hand must not quietly give saved numbers another meaning."""
    steps = manifest.update * session.sizes.batch_size
    now = codec.shape_digest(session.cfg, shape_keys(manifest.schema))
    if manifest.shape_digest and manifest.shape_digest != now:
        what = "the network, the environment or the number of seeds"
    elif manifest.env_steps != steps:
        what = "env.num_envs or algo.num_steps"
    else:
        return
    # The leaves say more where they differ.
    problems = records.leaf_differences(manifest.leaves, checkpoint.describe(session.abstract))
    message = "\n".join([f"{paths.config} has changed {what} since checkpoint {manifest.update}", *problems[:8]])
    raise HmxError(message, "put run.toml back as it was; a new configuration needs a new run", ExitCode.ARTEFACT)
