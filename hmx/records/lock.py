"""Allow one writer per run, by a lock file in the run folder; exact on every disk, with or without `flock`.

The file `lock` names its owner and a random token. It appears as a whole, by a hard link, so one process creates it. A
process takes a stale lock over by creating the file `lock-KEY`, whose name is made from the token in the stale one.
One process wins that name too, and then renames its file to `lock`. A slower process reads `lock` again, does not find
its own file at the end of the chain, and deletes it. So a new lock is never mistaken for the stale one.

A lock of this machine is stale when its process is gone. Elsewhere the modification time of the file is a heartbeat,
renewed every `HEARTBEAT` seconds; a lock without one for `STALE` seconds is stale. The file system of the folder is the
only clock for that. `flock` may only add that an owner lives which cannot be seen.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import errno
import fcntl
import hashlib
import json
import os
import shlex
import socket
import threading
import time
from pathlib import Path
from typing import Literal, NamedTuple

from hmx.config.files import open_plain, words
from hmx.errors import ExitCode, HmxError, counted
from hmx.records import atomic
from hmx.records.artefact import SEAL, digest, sealed
from hmx.records.owner import Owner, lives, this_process
from hmx.records.paths import LOCK, RunPaths
from hmx.records.plain import typed

SCHEMA = 1
HEARTBEAT = 20.0  # seconds between two heartbeats
STALE = 120.0  # seconds without a heartbeat after which the lock of another machine is stale

_TRIES = 15  # to get a lock that others take and release; `hmx runs list` briefly holds `flock` to test it
_PAUSE = 0.02  # seconds between them
_STARTING = 10.0  # seconds in which an empty lock gets its content, on a disk without hard links
_LONGEST = 64  # files of a chain; there are two only while a lock is taken over
_NO_LOCKS = (errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.ENOSYS, errno.EINVAL)
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


@dataclasses.dataclass(frozen=True)
class Holding:
    """The state of a run's lock: `held`, `stale` (its process is gone) or `free`."""

    state: Literal["held", "stale", "free"]
    owner: Owner | None = None
    quiet: float = dataclasses.field(default=0.0, compare=False)  # seconds since the last heartbeat, where it decides


class RunInUse(HmxError):
    """Another process holds the lock of a run."""


class RunLock:
    """Hold the lock of a run while the `with` block runs.

    `note` is a message about a stale lock that was found, or empty; `paths` are those of the run.

    Raises:
        RunInUse: another process holds it (exit code 2).
        HmxError: the lock file cannot be written (3).
    """

    def __init__(self, paths: RunPaths) -> None:
        self.note = ""
        self.paths = paths
        self._handle = -1
        self._stop = threading.Event()

    def __enter__(self) -> RunLock:
        try:
            self._handle = self._acquire(sealed({"schema": SCHEMA, **dataclasses.asdict(this_process())}))
        except OSError as problem:
            raise _unusable(self.paths.lock, problem) from problem
        beat = threading.Thread(target=_beat, args=(os.dup(self._handle), self._stop), name="hmx-lock", daemon=True)
        beat.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        path = self.paths.lock
        with contextlib.suppress(OSError):
            # While this machine was suspended, another one may have taken the lock over.
            if _is_at(self._handle, path) and len(_chain(path)) == 1:
                path.unlink()
        with contextlib.suppress(OSError):  # also for the copy of the descriptor that the heartbeat thread has
            fcntl.flock(self._handle, fcntl.LOCK_UN)
        os.close(self._handle)

    @property
    def handle(self) -> int:
        """The descriptor of its file: a process that inherits it holds the lock too, also after this one is killed."""
        return self._handle

    def moved(self, paths: RunPaths) -> None:
        """Note that the folder of the run was renamed, with the lock in it."""
        self.paths = paths

    def _acquire(self, text: str) -> int:
        path = self.paths.lock
        for _ in range(_TRIES):
            last = next(reversed(_chain(path)), None)
            found = _state_of(last, self.paths.folder)
            if found.state == "held":
                raise _refusal(self.paths, found)
            place = last.successor if last else path
            try:
                _create(place, text, last)
                won = [link.text for link in _chain(path)[-1:]] == [text.encode()]
                if won:
                    handle = _settle(place, path)
                    self.note = _note(path, last)
                    return handle
            except BaseException:
                _withdraw(text, place, path)
                raise
            _withdraw(text, place)
            time.sleep(_PAUSE)
        raise _refusal(self.paths, Holding("held"))


class _Link(NamedTuple):
    """One file of the chain of a lock: `lock`, or a file that takes over the one before it."""

    path: Path
    text: bytes
    status: os.stat_result
    locked: bool | None  # as `_flock` returns it

    @property
    def owner(self) -> Owner | None:
        """The owner that it names; None if it is damaged or empty."""
        return _owner(self.text)

    @property
    def successor(self) -> Path:
        """The path of the file that takes it over."""
        # Only the text of a lock with an owner is unique.
        file = b"" if self.owner else f"{self.status.st_ino} {self.status.st_mtime_ns}\n".encode()
        return self.path.with_name(f"{LOCK}-{hashlib.sha256(file + self.text).hexdigest()[:32]}")


def _chain(path: Path) -> list[_Link]:
    """Read a lock and the files that take it over, oldest first; the last one counts."""
    found: list[_Link] = []
    while len(found) < _LONGEST:
        try:
            handle = open_plain(path)
        except FileNotFoundError:
            return found
        try:
            locked = _flock(handle, shared=True)
            found.append(_Link(path, os.pread(handle, 1 << 16, 0), os.fstat(handle), locked))
        finally:
            os.close(handle)
        path = found[-1].successor
    raise OSError(errno.EMLINK, f"more than {_LONGEST} processes were killed while they took it over")


def _state_of(last: _Link | None, folder: Path) -> Holding:
    """Return the state of a lock from the last file of its chain."""
    if last is None:
        return Holding("free")
    owner, quiet = last.owner, 0.0
    alive = False if owner is None else lives(owner)
    if owner is not None and alive and owner.pid == os.getpid():
        alive = not last.locked  # `flock` is granted for a lock that this process has released or lost
    if alive is None:
        quiet = max(0.0, _now(folder) - last.status.st_mtime)
        alive = quiet < STALE
    return Holding("held" if alive or last.locked is False else "stale", owner, quiet)


def _create(place: Path, text: str, last: _Link | None) -> None:
    """Create a file of the chain as a whole, unless another process was faster.

    Raises:
        OSError: the file cannot be written.
    """
    try:
        atomic.create(place, text)
    except OSError as problem:
        if problem.errno not in _NO_LINKS:
            raise
        # Without hard links there is an empty file for a moment; no other process takes that over.
        if last is not None and not last.text and _now(place.parent) - last.status.st_mtime < _STARTING:
            return
        with contextlib.suppress(FileExistsError):
            os.close(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
            atomic.write_text(place, text)


def _settle(place: Path, path: Path) -> int:
    """Give a lock that was taken its name, and delete what killed processes have left of others; return its file."""
    handle = open_plain(place, os.O_RDWR)
    try:
        if place != path:
            os.replace(place, path)
        for _ in range(_TRIES):
            if _flock(handle, shared=False) is not False:
                break
            time.sleep(_PAUSE)
        chain = {link.path for link in _chain(path)}
        for left in {*path.parent.glob(f"{LOCK}-*"), *path.parent.glob(f".now-{'?' * atomic.PROBE}")} - chain:
            with contextlib.suppress(OSError):
                left.unlink()
        atomic.sweep(path.parent)
        return handle
    except BaseException:
        os.close(handle)
        raise


def _withdraw(text: str, *places: Path) -> None:
    """Delete the file of a process that does not get the lock."""
    for place in places:
        with contextlib.suppress(OSError):
            if place.read_bytes() == text.encode():
                place.unlink()


def _note(path: Path, last: _Link | None) -> str:
    if last is None or not last.text:
        return ""
    if last.owner is None:
        return f"removed the stale lock {path}, which is damaged"
    return f"removed the stale lock {path} of process {last.owner.pid} on {last.owner.host}, which is gone"


def holding(paths: RunPaths) -> Holding:
    """Return whether a process writes to a run; leave the folder as it is.

    Raises:
        OSError: the lock file cannot be read, or is not a regular file.
    """
    return _state_of(next(reversed(_chain(paths.lock)), None), paths.folder)


def check_free(paths: RunPaths) -> None:
    """Refuse a run that a process writes to (exit code 2), or whose lock cannot be read (3)."""
    try:
        found = holding(paths)
    except OSError as problem:
        raise _unusable(paths.lock, problem) from problem
    if found.state == "held":
        raise _refusal(paths, found)


def _owner(text: bytes) -> Owner | None:
    """Return the owner named in a file; None if it is damaged or still empty."""
    try:
        data = json.loads(text)
        if data.pop(SEAL) != digest(data):
            return None
        del data["schema"]
        owner = typed(Owner, data)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return owner if owner.pid > 0 else None


def _is_at(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.lstat())
    except FileNotFoundError:
        return False


def _flock(handle: int, shared: bool) -> bool | None:
    """Try to lock: True if locked now, False if another process has it, None if the file system has no such locks."""
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as problem:
        if problem.errno in _NO_LOCKS:
            return None
        if problem.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise
    return True


def _beat(handle: int, stop: threading.Event) -> None:
    try:
        while not stop.wait(HEARTBEAT):
            with contextlib.suppress(OSError):
                os.utime(handle)
    finally:
        os.close(handle)


def _now(folder: Path) -> float:
    try:
        return atomic.now_in(folder)
    except OSError:  # a folder that this process cannot write to, so it cannot take the lock either
        return time.time()


def _refusal(paths: RunPaths, found: Holding) -> RunInUse:
    owner = found.owner
    if owner is None:
        return RunInUse(f"{paths.folder} is in use by another process", "wait until it has ended")
    here = owner.host == socket.gethostname()
    since = f"since {owner.since} ({_age(owner.since)})"
    if here:
        message = f"{paths.folder} is in use by process {owner.pid} {since}"
        return RunInUse(message, f"wait until it has ended, or stop it: kill {owner.pid}")
    beat = f"last heartbeat {found.quiet:.0f} s ago"
    message = f"{paths.folder} is in use by process {owner.pid} on {owner.host} {since}; {beat}"
    lapse = f"if that machine is gone, the lock becomes stale {STALE:.0f} s after its last heartbeat"
    remove = f"rm {shlex.quote(str(paths.lock))}"
    return RunInUse(message, f"wait until it has ended, or stop it there; {lapse}, or remove it now: {remove}")


def _age(moment: str) -> str:
    try:
        seconds = (datetime.datetime.now(datetime.UTC) - datetime.datetime.fromisoformat(moment)).total_seconds()
    except (ValueError, TypeError):
        return "at an unknown time"
    for size, name in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f} {name} ago"
    return f"{counted(round(max(seconds, 0)), 'second')} ago"


def _unusable(lock: Path, problem: OSError) -> HmxError:
    what = {errno.ELOOP: "a link", errno.EISDIR: "a folder", errno.EINVAL: "not a file", errno.ENXIO: "a pipe"}
    if problem.errno in what:
        hint = f"if no process trains there, move it away: mv {shlex.quote(str(lock))} {shlex.quote(str(lock))}.damaged"
        return HmxError(f"cannot lock {lock}: it is {what[problem.errno]}", hint, ExitCode.ARTEFACT)
    hint = "check the permissions of the run folder and the free space"
    return HmxError(f"cannot write the lock {lock}: {words(problem)}", hint, ExitCode.ARTEFACT)
