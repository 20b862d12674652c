"""Name a process in a file, and find out later whether it still runs on this machine."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import hashlib
import os
import secrets
import socket
from pathlib import Path


@dataclasses.dataclass(frozen=True, kw_only=True)
class Owner:
    """A process, distinguished from a later one with the same number."""

    host: str
    pid: int
    started: str  # start time of the process, in units of its system; "" if unknown
    boot: str  # id of the machine's boot; "" if unknown
    since: str  # when the lock was taken, ISO 8601 in UTC
    pids: str = ""  # namespace of the process number, such as that of a container; "" if unknown
    token: str = ""  # random, so that no two locks are equal; "" in locks of earlier versions


def this_process() -> Owner:
    """Return this process, with a new token."""
    moment = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return Owner(
        host=socket.gethostname(),
        pid=os.getpid(),
        started=started(os.getpid()),
        boot=_boot(),
        since=moment,
        pids=_namespace(),
        token=secrets.token_hex(16),
    )


def mark_of(pid: int) -> str:
    """Return a text for file names that no other process has, on any machine: `PID-MACHINE-START`."""
    return f"{pid}-{_machine()}-{started(pid)}"


def has_ended(mark: str) -> bool | None:
    """Return whether the process with a mark has ended; None if it is not of this machine, or not a mark."""
    pid, machine, _ = (*mark.split("-", 2), "", "")[:3]
    return mark != mark_of(int(pid)) if machine == _machine() and pid.isdecimal() else None


@functools.cache
def _machine() -> str:
    return hashlib.sha256(f"{socket.gethostname()} {_boot()} {_namespace()}".encode()).hexdigest()[:8]


def lives(owner: Owner) -> bool | None:
    """Return whether a process still runs; None if that cannot be seen from here."""
    me = this_process()
    if owner.boot == me.boot and (me.boot or owner.host == me.host):
        if owner.pids not in ("", me.pids):
            return None  # in another container of this machine, whose processes have numbers of their own
        return _runs(owner.pid) and owner.started == started(owner.pid)
    if owner.host == me.host and owner.boot and me.boot:
        return False  # the machine was restarted since
    return None


def started(pid: int) -> str:
    """Return the start time of a process in units of its system; "" if it has ended or that is unknown."""
    try:
        # The name of the program is in parentheses and may contain any character.
        state, *facts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if state in "ZX" else facts[18]  # a zombie has ended, but its parent has not noticed
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


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # such as a process of another user
        pass
    return True
