"""Allow one writer per run, by a lock file in the run folder.

The lock itself is the system's (`flock`), which ends with the process. The file names its owner, for users and for
machines that share the folder but not `flock`. Between those, the modification time of the file is a heartbeat, renewed
every `HEARTBEAT` seconds; a lock without one for `STALE` seconds is stale.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import errno
import fcntl
import json
import os
import shlex
import socket
import threading
import time
from pathlib import Path
from typing import Literal

from hmx.config.files import open_plain, words
from hmx.errors import ExitCode, HmxError, counted
from hmx.records.artefact import SEAL, digest, sealed
from hmx.records.paths import RunPaths
from hmx.records.plain import typed

SCHEMA = 1
HEARTBEAT = 20.0  # seconds between two heartbeats
STALE = 120.0  # seconds without a heartbeat after which the lock of another machine is stale

_PATIENCE = 0.3  # seconds; `hmx runs list` briefly holds a lock to test it
_NO_LOCKS = (errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.ENOSYS, errno.EINVAL)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Owner:
    """A process, distinguished from a later one with the same number."""

    host: str
    pid: int
    started: str  # start time of the process, in units of its system; "" if unknown
    boot: str  # id of the machine's boot; "" if unknown
    since: str  # when the lock was taken, ISO 8601 in UTC
    pids: str = ""  # namespace of the process number, such as that of a container; "" if unknown


@dataclasses.dataclass(frozen=True)
class Holding:
    """The state of a run's lock: `held`, `stale` (its process is gone) or `free`."""

    state: Literal["held", "stale", "free"]
    owner: Owner | None = None


class RunInUse(HmxError):
    """Another process holds the lock of a run."""


class RunLock:
    """Hold the lock of a run while the `with` block runs.

    `note` is a message about a stale lock that was found, or empty.

    Raises:
        RunInUse: another process holds it (exit code 2).
        HmxError: the lock file cannot be written (3).
    """

    def __init__(self, paths: RunPaths) -> None:
        self.note = ""
        self._path = paths.lock
        self._folder = paths.folder
        self._handle = -1
        self._stop = threading.Event()

    def __enter__(self) -> RunLock:
        try:
            self._handle = self._acquire()
        except OSError as problem:
            raise _unusable(self._path, problem) from problem
        beat = threading.Thread(target=_beat, args=(os.dup(self._handle), self._stop), name="hmx-lock", daemon=True)
        beat.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        with contextlib.suppress(OSError):
            if _is_at(self._handle, self._path):
                self._path.unlink()
        with contextlib.suppress(OSError):  # also for the copy of the descriptor that the heartbeat thread has
            fcntl.flock(self._handle, fcntl.LOCK_UN)
        os.close(self._handle)

    def _acquire(self) -> int:
        give_up = time.monotonic() + _PATIENCE
        while True:
            handle = open_plain(self._path, os.O_RDWR | os.O_CREAT)
            try:
                locked = _flock(handle, shared=False)
                # A process that ends removes the file, so the opened file may no longer be the one at the path.
                if locked is not False and _is_at(handle, self._path):
                    self._take(handle, locked)
                    return handle
                if locked is False and time.monotonic() > give_up:
                    raise _refusal(self._folder, self._path, _owner(handle), _quiet(handle, time.time()))
            except BaseException:
                os.close(handle)
                raise
            os.close(handle)
            time.sleep(0.02)

    def _take(self, handle: int, locked: bool | None) -> None:
        found = os.fstat(handle).st_size
        owner = _owner(handle) if found else None
        quiet = _quiet(handle, _now_in(self._folder))
        if owner is not None and _alive(owner, quiet, locked):
            raise _refusal(self._folder, self._path, owner, quiet)
        if owner is not None:
            self.note = f"removed the stale lock {self._path} of process {owner.pid} on {owner.host}, which is gone"
        elif found:
            self.note = f"removed the stale lock {self._path}, which is damaged"
        os.ftruncate(handle, 0)
        os.pwrite(handle, sealed({"schema": SCHEMA, **dataclasses.asdict(this_process())}).encode(), 0)
        os.fsync(handle)


def holding(paths: RunPaths) -> Holding:
    """Return whether a process writes to a run; change nothing.

    Raises:
        OSError: the lock file cannot be read, or is not a regular file.
    """
    try:
        handle = open_plain(paths.lock)
    except FileNotFoundError:
        return Holding("free")
    try:
        locked, owner = _flock(handle, shared=True), _owner(handle)
        alive = locked is False or (owner is not None and _alive(owner, _quiet(handle, time.time()), locked))
        return Holding("held" if alive else "stale", owner)
    finally:
        os.close(handle)


def check_free(paths: RunPaths) -> None:
    """Refuse a run that a process writes to (exit code 2), or whose lock cannot be read (3)."""
    try:
        found = holding(paths)
        if found.state == "held":
            raise _refusal(paths.folder, paths.lock, found.owner, max(0.0, time.time() - paths.lock.stat().st_mtime))
    except OSError as problem:
        raise _unusable(paths.lock, problem) from problem


def this_process() -> Owner:
    """Return this process."""
    moment = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return Owner(
        host=socket.gethostname(),
        pid=os.getpid(),
        started=_started(os.getpid()),
        boot=_boot(),
        since=moment,
        pids=_namespace(),
    )


def _started(pid: int) -> str:
    try:
        # The name of the program is in parentheses and may contain any character.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError, UnicodeDecodeError):
        return ""


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _alive(owner: Owner, quiet: float, locked: bool | None) -> bool:
    """Return whether a lock that `flock` grants still belongs to a live process.

    `quiet` is the time since its last heartbeat; `locked` is None if `flock` does not work.
    """
    me = this_process()
    same_boot = owner.boot == me.boot and (me.boot or owner.host == me.host)
    if same_boot and owner.pids not in ("", me.pids):
        return quiet < STALE  # in another container of this machine, whose processes have numbers of their own
    if same_boot:
        # A grant by `flock` is correct, unless the lock file was deleted while its owner ran.
        return _runs(owner.pid) and owner.started == _started(owner.pid) and not (locked and owner.pid == me.pid)
    if owner.host == me.host and owner.boot and me.boot:
        return False  # the machine was restarted since
    return quiet < STALE


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # such as a process of another user
        pass
    return True


def _owner(handle: int) -> Owner | None:
    """Return the owner named in the file; None if it is damaged or still empty."""
    try:
        data = json.loads(os.pread(handle, 1 << 16, 0))
        if data.pop(SEAL) != digest(data):
            return None
        del data["schema"]
        owner = typed(Owner, data)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
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


def _quiet(handle: int, now: float) -> float:
    """Return the seconds since the last heartbeat."""
    return max(0.0, now - os.fstat(handle).st_mtime)


def _now_in(folder: Path) -> float:
    """Return the current time of the clock that stamps the files of a folder, such as that of a file server."""
    probe = folder / f".lock-{os.getpid()}"
    try:
        os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        return probe.lstat().st_mtime
    except FileExistsError:
        return time.time()
    finally:
        probe.unlink(missing_ok=True)


def _refusal(folder: Path, lock: Path, owner: Owner | None, quiet: float) -> RunInUse:
    if owner is None:
        return RunInUse(f"{folder} is in use by another process", "wait until it has ended")
    here = owner.host == socket.gethostname()
    since = f"since {owner.since} ({_age(owner.since)})"
    if here:
        message = f"{folder} is in use by process {owner.pid} {since}"
        return RunInUse(message, f"wait until it has ended, or stop it: kill {owner.pid}")
    beat = f"last heartbeat {quiet:.0f} s ago"
    message = f"{folder} is in use by process {owner.pid} on {owner.host} {since}; {beat}"
    lapse = f"if that machine is gone, the lock becomes stale {STALE:.0f} s after its last heartbeat"
    return RunInUse(
        message, f"wait until it has ended, or stop it there; {lapse}, or remove it now: rm {shlex.quote(str(lock))}"
    )


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
