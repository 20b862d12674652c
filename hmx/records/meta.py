"""Read and write meta.json: the run id, its versions, device, command lines and progress.

Schema 1 had no seal, no digest of run.toml and no notes of resumptions; 2 had no id and no count of writes; 3 had no
processor time, no kind of processor and no digest of what else decides the last bits.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import platform
import re
import secrets
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from hmx.config.coerce import show
from hmx.config.textfile import quoted
from hmx.errors import ExitCode, HmxError
from hmx.records import atomic
from hmx.records.artefact import read_json, sealed
from hmx.records.plain import JsonValue, plain_object, typed

SCHEMA = 4
_ID_BYTES = 8
STATES = ("running", "finished", "interrupted", "failed")
_LONGEST = 400  # characters of the changes of an entry
NOT_REPLAYED = "running episodes could not be replayed"
"""What the note of a resumption says of a simulator that is not deterministic."""
OTHER_BITS = "so the numbers may differ in their last bits"
"""What the note of a resumption on another machine, or with other versions, says."""
_MACHINE = ("device", "processor")
ROLLBACK = "rollback"
"""How the note of a fork begins that `run.on_finding` made."""
PACKAGES = ("hmx", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Resume:
    """One resumption of a run, or the fork that began it."""

    at: str
    update: int
    command: tuple[str, ...]
    changes: dict[str, list[object]] = dataclasses.field(default_factory=dict)  # dotted key -> [old, new]
    damaged: dict[str, str] = dataclasses.field(default_factory=dict)  # newer checkpoint -> why it was not used
    notes: tuple[str, ...] = ()  # other problems found and repaired, such as a stale lock or lost records
    parent: dict[str, str] = dataclasses.field(default_factory=dict)  # of a fork: name and run_id of the other run


@dataclasses.dataclass(frozen=True, kw_only=True)
class Meta:
    """Facts about a run. Times are ISO 8601 in UTC; `update` and `env_steps` are those at `updated`."""

    schema: int = SCHEMA
    run_id: str = ""  # random; "" before schema 3
    writes: int = 0  # how often the run has written this file; distinguishes an older copy from a newer one
    state: str = "running"
    created: str
    updated: str
    update: int = 0
    env_steps: int = 0
    command: tuple[str, ...] = ()
    device: str = ""
    processor: str = ""  # its kind, see `hmx.runs.compilation.processor`
    python: str = ""
    platform: str = ""
    versions: dict[str, str] = dataclasses.field(default_factory=dict)
    arithmetic: str = ""  # SHA-256 of what else decides the last bits: see `hmx.runs.lowered.arithmetic`
    git_revision: str = ""
    git_dirty: bool = False
    config_digest: str = ""
    shape_digest: str = ""
    config_sha256: str = ""  # of the file run.toml
    environment: dict[str, str] = dataclasses.field(default_factory=dict)  # id, path and sha256 of a user's own
    resumes: tuple[Resume, ...] = ()
    cpu_seconds: float = 0.0  # processor time of the processes that trained it, until `updated`
    memory_bytes: int = 0  # of the compiled updates on each device; 0 before the first end
    message: str = ""  # why it failed
    hint: str = ""  # what to do about it


def now() -> str:
    """Return the current time in UTC, to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def collect(
    device: str,
    command: Sequence[str] | None = None,
    config_digest: str = "",
    shape_digest: str = "",
    config: str | None = None,
) -> Meta:
    """Return the meta data of a run that starts now."""
    moment = now()
    revision, dirty = git_state(Path(__file__).resolve().parent)
    return Meta(
        run_id=secrets.token_hex(_ID_BYTES),
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
        config_sha256="" if config is None else sha256(config),
    )


def sha256(text: str) -> str:
    """Return the SHA-256 of a text in UTF-8, as 64 hex digits."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def changed(meta: Meta, **fields: Any) -> Meta:
    """Return the meta data with some fields changed, for the next write."""
    return dataclasses.replace(meta, updated=now(), writes=meta.writes + 1, **fields)


def resumed(
    meta: Meta,
    update: int,
    command: Sequence[str] | None = None,
    changes: Mapping[str, Sequence[object]] | None = None,
    damaged: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
    parent: Mapping[str, str] | None = None,
) -> Meta:
    """Return the meta data of a run that is resumed from `update`; see `Resume`. A run without an id gets one."""
    entry = Resume(
        at=now(),
        update=update,
        command=tuple(sys.argv if command is None else command),
        changes={key: list(pair) for key, pair in (changes or {}).items()},
        damaged=dict(damaged or {}),
        notes=tuple(notes),
        parent=dict(parent or {}),
    )
    run_id = meta.run_id or secrets.token_hex(_ID_BYTES)
    return changed(
        meta, run_id=run_id, state="running", message="", hint="", update=update, resumes=(*meta.resumes, entry)
    )


def with_history(config: str, resumes: Sequence[Resume]) -> str:
    """Return the content of run.toml: a configuration below the forks and changes that led to it, as comments."""
    lines = [f"# {described(entry)}\n" for entry in resumes if entry.parent or entry.changes]
    return "".join(lines) + config


def described(entry: Resume) -> str:
    """Say where a resumption or a fork began and what it changed."""
    what = f"forked from {quoted(entry.parent.get('name', ''))}" if entry.parent else "resumed"
    changes = ", ".join(f"{key} {show(pair[0])} -> {show(pair[-1])}" for key, pair in entry.changes.items() if pair)
    return f"{what} at update {entry.update}: {quoted(changes or 'no changes', _LONGEST)}"


def differences(meta: Meta, made: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Return the devices, processors and versions, by name, in which a run and other fields of meta.json differ.

    What either does not know is left out, and so is the number of devices that a run does not use.
    """
    sides = [{**side["versions"], **{name: _alone(side[name]) for name in _MACHINE}} for side in (vars(meta), made)]
    pairs = {name: (sides[0][name], sides[1].get(name, "")) for name in sorted(sides[0])}
    return {name: pair for name, pair in pairs.items() if all(pair) and pair[0] != pair[1]}


def _alone(device: str) -> str:
    return re.sub(r" \(1 of \d+\)$", "", device)


@cache
def versions() -> dict[str, str]:
    """Return the installed package versions that a run depends on."""
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


@cache  # the code of a process does not change while it runs
def git_state(folder: Path) -> tuple[str, bool]:
    """Return the revision of the package's git checkout and whether it has changes; ("", False) without a checkout."""
    if not any((parent / ".git").exists() for parent in (folder, *folder.parents)):
        return "", False
    revision = _git(folder, "rev-parse", "HEAD")
    # An installed package may be inside another project's checkout, where it is not tracked.
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


def to_text(meta: Meta) -> str:
    """Return the content of the file."""
    data = {**plain_object(meta), "schema": SCHEMA}
    # Most runs have neither, and older versions do not know these fields.
    if not meta.environment:
        del data["environment"]
    data["resumes"] = [_resume_object(entry) for entry in meta.resumes]
    return sealed(data)


def _resume_object(entry: Resume) -> dict[str, JsonValue]:
    data = plain_object(entry)
    if not entry.parent:
        del data["parent"]
    return data


def write(path: Path, meta: Meta) -> None:
    """Write the file atomically."""
    atomic.write_text(path, to_text(meta))


def read(path: Path) -> Meta:
    """Read the meta data of a run.

    Raises:
        NewerSchema: a later hmx wrote it (exit code 3).
        Unreadable: the system fails to read it (3).
        HmxError: it is missing or damaged (3).
    """
    hint = "`hmx resume` restores this file; configuration, metrics and checkpoints do not depend on it"
    data = read_json(path, SCHEMA, f"{path} is missing", hint, sealed_from=2)
    try:
        meta = dataclasses.replace(typed(Meta, data), schema=SCHEMA)
    except TypeError:
        raise HmxError(f"{path} is damaged: not the meta data of a run", hint, ExitCode.ARTEFACT) from None
    if meta.state not in STATES:
        raise HmxError(f"{path} is damaged: unknown state {quoted(meta.state)}", hint, ExitCode.ARTEFACT)
    return meta


def find(path: Path) -> Meta | None:
    """Return the meta data of a run, or None if they cannot be read."""
    try:
        return read(path)
    except HmxError:
        return None
