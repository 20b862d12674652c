"""meta.json: what a run ran on, how it was called, and how far it got."""

from __future__ import annotations

import dataclasses
import datetime
import json
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hmx.errors import ExitCode, HmxError
from hmx.records import atomic
from hmx.records.artefact import read_json

SCHEMA = 1
STATES = ("running", "finished", "interrupted", "failed")
PACKAGES = ("hmx", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Resume:
    """One time that a run went on."""

    at: str
    update: int
    command: tuple[str, ...]
    changes: dict[str, list[Any]] = dataclasses.field(default_factory=dict)  # dotted key -> [old, new]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Meta:
    """Facts about a run. Times are ISO 8601 in UTC; `update` and `env_steps` are as of `updated`."""

    schema: int = SCHEMA
    state: str = "running"
    created: str
    updated: str
    update: int = 0
    env_steps: int = 0
    command: tuple[str, ...] = ()
    device: str = ""
    python: str = ""
    platform: str = ""
    versions: dict[str, str] = dataclasses.field(default_factory=dict)
    git_revision: str = ""
    git_dirty: bool = False
    config_digest: str = ""
    shape_digest: str = ""
    resumes: tuple[Resume, ...] = ()
    message: str = ""  # why it failed


def now() -> str:
    """The present moment, in UTC, to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def collect(device: str, command: Sequence[str] | None = None, config_digest: str = "", shape_digest: str = "") -> Meta:
    """The meta data of a run that starts now, on `device` (in words); `command` defaults to this process's."""
    moment = now()
    revision, dirty = git_state(Path(__file__).resolve().parent)
    return Meta(
        created=moment,
        updated=moment,
        command=tuple(sys.argv if command is None else command),
        device=device,
        python=platform.python_version(),
        platform=platform.platform(),
        versions=versions(),
        git_revision=revision,
        git_dirty=dirty,
        config_digest=config_digest,
        shape_digest=shape_digest,
    )


def changed(meta: Meta, **fields: Any) -> Meta:
    """The meta data with some fields changed and `updated` set to now."""
    return dataclasses.replace(meta, updated=now(), **fields)


def resumed(
    meta: Meta, update: int, command: Sequence[str] | None = None, changes: Mapping[str, Sequence[Any]] | None = None
) -> Meta:
    """The meta data of a run that goes on from `update`, with `changes` (key -> old, new) of its configuration."""
    entry = Resume(
        at=now(),
        update=update,
        command=tuple(sys.argv if command is None else command),
        changes={key: list(pair) for key, pair in (changes or {}).items()},
    )
    return changed(meta, state="running", message="", update=update, resumes=(*meta.resumes, entry))


def versions() -> dict[str, str]:
    """The installed versions of what a run depends on; what is not installed is left out."""
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def git_state(folder: Path) -> tuple[str, bool]:
    """The revision of the checkout the package lies in and whether it has changes; ("", False) where there is none."""
    if not any((parent / ".git").exists() for parent in (folder, *folder.parents)):
        return "", False
    revision = _git(folder, "rev-parse", "HEAD")
    # An installed package may lie inside some other project's checkout, where it is not tracked.
    if not revision or not _git(folder, "ls-files", "--", "."):
        return "", False
    return revision, bool(_git(folder, "status", "--porcelain", "--untracked-files=no"))


def _git(folder: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ("git", "-C", str(folder), *arguments), capture_output=True, text=True, timeout=5, check=True
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return ""
    return done.stdout.strip()


def write(path: Path, meta: Meta) -> None:
    """Writes the file as a whole or not at all.

    Raises:
        OSError: it cannot be written; the old one is untouched.
    """
    atomic.write_text(path, json.dumps(dataclasses.asdict(meta), indent=1) + "\n")


def read(path: Path) -> Meta:
    """The meta data of a run.

    Raises:
        HmxError: missing, damaged, or of a newer schema (exit code 3).
    """
    hint = "the run's configuration, metrics and checkpoints do not depend on this file"
    data = read_json(path, SCHEMA, f"{path} is missing", hint)
    try:
        data["command"] = tuple(data["command"])
        data["resumes"] = tuple(Resume(**{**r, "command": tuple(r["command"])}) for r in data["resumes"])
        meta = Meta(**data)
    except (TypeError, KeyError):
        raise HmxError(f"{path} is damaged: not the meta data of a run", hint, ExitCode.ARTEFACT) from None
    if meta.state not in STATES:
        raise HmxError(f"{path} is damaged: unknown state {meta.state!r}", hint, ExitCode.ARTEFACT)
    return meta
