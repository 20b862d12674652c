"""Write files atomically: after a crash there is either the old file or the new one."""

from __future__ import annotations

import contextlib
import glob
import os
import secrets
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from hmx.config.files import words
from hmx.errors import ExitCode, HmxError
from hmx.records.owner import has_ended, mark_of
from hmx.records.paths import CONFIG, RUN_FILES

_ABANDONED = 3600.0  # seconds since another machine wrote a temporary file, after which its process is gone
_MARK = ".tmp-"  # in the name of a temporary file, before the mark of its process
PROBE = 16  # characters at the end of the name of a file that tells the time


def write_text(path: Path, text: str) -> None:
    """Write a file under a temporary name, flush it to disk and rename it; errors as of `replacing`."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, data: bytes) -> None:
    """Write bytes as `write_text` does."""
    with replacing(path) as file:
        file.write(data)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a file under a temporary name; after the block it is flushed to disk and renamed.

    Temporary files that a killed process has left for the same name are deleted.

    Raises:
        OSError: it cannot be written; the old file, if any, is unchanged.
    """
    sweep(path.parent, path.name)
    temporary = _temporary(path)
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(path.parent)


def create(path: Path, text: str) -> bool:
    """Create a whole file that no process has created before; return False if another one did.

    Of any number of processes, on any number of hosts that share the folder, exactly one gets True. No process ever
    sees a part of the file.

    Raises:
        OSError: it cannot be written, or the file system has no hard links.
    """
    sweep(path.parent, path.name)
    temporary = _temporary(path)
    try:
        with temporary.open("xb") as file:
            file.write(text.encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
        created = _link(temporary, path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
    sync_folder(path.parent)
    return created


def _link(temporary: Path, path: Path) -> bool:
    try:
        os.link(temporary, path)
    except FileExistsError:
        # NFS sends a call again if the answer was lost; the second call then fails although the first succeeded.
        return temporary.stat().st_nlink == 2
    return True


def _temporary(path: Path) -> Path:
    """Return a new name that no other process on any host uses, nor can foresee."""
    return path.with_name(f".{path.name}{_MARK}{mark_of(os.getpid())}-{secrets.token_hex(4)}")


def sweep(folder: Path, name: str = "") -> None:
    """Delete temporary files that killed processes have left in a folder: those for a name, or all."""
    for path in folder.glob(f".{glob.escape(name) or '*'}{_MARK}[0-9]*"):
        with contextlib.suppress(OSError):
            gone = has_ended(path.name.rpartition(_MARK)[2].rpartition("-")[0])
            if gone or (gone is None and now_in(folder) - path.lstat().st_mtime > _ABANDONED):
                path.unlink()


def now_in(folder: Path) -> float:
    """Return the current time, in seconds, of the clock that stamps the files of a folder, as that of a file server.

    Raises:
        OSError: no file can be written there.
    """
    probe = folder / f".now-{secrets.token_hex(PROBE // 2)}"
    handle = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        return os.fstat(handle).st_mtime
    finally:
        os.close(handle)
        with contextlib.suppress(OSError):
            probe.unlink()


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to disk, so that a rename survives a crash of the machine."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def check_new(place: Path, force: bool, name: str) -> None:
    """Refuse (exit code 2) a file that exists, unless `force`, that a run needs, or that cannot be made.

    `name` is an alternative.
    """
    if place.is_dir():
        raise HmxError(f"cannot write {place}: it is a folder", f"--output {shlex.quote(str(place / name))}")
    if not place.parent.is_dir():
        raise HmxError(f"cannot write {place}: the folder does not exist", f"mkdir -p {shlex.quote(str(place.parent))}")
    if place.name in RUN_FILES and (place.parent / CONFIG).is_file():
        raise HmxError(
            f"cannot write {place}: the run needs that file", f"--output {shlex.quote(str(place.parent / name))}"
        )
    if place.exists() and not force:
        raise taken(place)


def taken(place: Path) -> HmxError:
    """Return the error for an output that exists."""
    return HmxError(f"cannot write {place}: it already exists", "--force replaces it; --output names another")


@contextlib.contextmanager
def writing(what: str, path: Path, code: ExitCode = ExitCode.USAGE) -> Iterator[None]:
    """Turn an OSError inside the block into an HmxError that names the file and the reason."""
    try:
        yield
    except OSError as problem:
        reason = words(problem)
        hint = "choose a folder you can write to, such as --set run.root=/tmp/runs, or free some space"
        raise HmxError(f"cannot write {what} {path}: {reason}", hint, code) from problem
