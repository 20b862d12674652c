"""The code that the user trusts, remembered for later processes outside any run folder: path and SHA-256 of files."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

_PATIENCE = 10.0  # seconds that a process waits for others to write, each for some milliseconds


def remembered() -> list[list[str]]:
    """Return the pairs of path and SHA-256."""
    try:
        found = json.loads(_store().read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return []
    return found if isinstance(found, list) else []


def remember(pair: list[str]) -> None:
    """Add a pair of path and SHA-256; if the file cannot be written, the user is asked again next time."""
    store = _store()
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
