"""The code that may run: path and SHA-256 of files, kept for this process and remembered for later ones.

The file that remembers them is outside any run folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hmx.config.textfile import quoted
from hmx.errors import HmxError

TRUST_FLAG, ACCEPT_FLAG = "--trust-env", "--accept-env-change"
_PATIENCE = 10.0  # seconds that a process waits for others to write, each for some milliseconds

_allowed: list[list[str]] = []  # [path, SHA-256]


class Permissions:
    """Permissions of this process for code that a run names."""

    trust = False  # run all of it (`--trust-env`)
    accept_change = False  # use a file that has changed since the run began (`--accept-env-change`)


@contextlib.contextmanager
def trusting(everything: bool, changed: bool = False) -> Iterator[None]:
    """Inside the block, trust all code if `everything`, and use files that have changed if `changed`."""
    before = Permissions.trust, Permissions.accept_change
    Permissions.trust, Permissions.accept_change = before[0] or everything, before[1] or changed
    try:
        yield
    finally:
        Permissions.trust, Permissions.accept_change = before


def may_run(path: Path, digest: str) -> bool:
    """Return whether the user named or trusted a file with this content in this process."""
    return [str(path), digest] in _allowed


def check_allowed(path: Path, digest: str, named: bool = False) -> None:
    """Refuse a file (exit code 2), unless it or code that imports it was `named`, or it is trusted as it is now."""
    if named or Permissions.trust:
        remember(path, digest)
    elif not may_run(path, digest) and [str(path), digest] not in remembered():
        why = "a run or a file names or imports it, but you have not trusted its code"
        hint = f"read it, then add {TRUST_FLAG}; hmx remembers it as it is now"
        raise HmxError(f"cannot run {quoted(str(path), 400)}: {why}", hint)


def permissions(*named: list[str]) -> dict[str, Any]:
    """Return the permissions of this process and those for `named` files, for `permit` in another one."""
    return {"allowed": [*_allowed, *named], "trust": Permissions.trust, "accept_change": Permissions.accept_change}


def permit(given: Mapping[str, Any]) -> None:
    """Allow this process to run what another one may, which gave its `permissions`."""
    _allowed.extend(pair for pair in given["allowed"] if pair not in _allowed)
    Permissions.trust, Permissions.accept_change = given["trust"], given["accept_change"]


def remembered() -> list[list[str]]:
    """Return the pairs of path and SHA-256."""
    try:
        found = json.loads(_store().read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return []
    return found if isinstance(found, list) else []


def remember(path: Path, digest: str) -> None:
    """Allow a file as it is now; if that cannot be written down, the user is asked again next time."""
    pair, store = [str(path), digest], _store()
    if pair in _allowed:
        return
    _allowed.append(pair)
    with contextlib.suppress(OSError):
        store.parent.mkdir(parents=True, exist_ok=True)
        with _alone(store):
            known = remembered()
            if pair not in known:
                temporary = store.with_name(f".{store.name}.{os.getpid()}")
                temporary.write_text(json.dumps([*known, pair], indent=0), encoding="utf-8")
                os.replace(temporary, store)


@contextlib.contextmanager
def _alone(store: Path) -> Iterator[None]:
    """Keep other processes from writing inside the block; without effect where the disk has no locks."""
    handle = os.open(store.with_name(f".{store.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        give_up = time.monotonic() + _PATIENCE
        while time.monotonic() < give_up:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.005)
            except OSError:
                break
        yield
    finally:
        os.close(handle)


def _store() -> Path:
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "hmx" / "trusted-code.json"
