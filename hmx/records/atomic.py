"""Files that are either the old one or the new one, whatever happens in between."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from hmx.errors import ExitCode, HmxError


def write_text(path: Path, text: str) -> None:
    """Writes a file beside its final name, flushes it to disk and renames it.

    Raises:
        OSError: it cannot be written; the old file, if any, is untouched.
    """
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, data: bytes) -> None:
    """`write_text` for bytes."""
    temporary = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Flushes the names in a folder to disk, so that a rename survives a crash of the machine."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def writing(what: str, path: Path, code: ExitCode = ExitCode.USAGE) -> Iterator[None]:
    """Turns an OSError inside into an HmxError that says what could not be written, and why."""
    try:
        yield
    except OSError as problem:
        reason = (problem.strerror or str(problem)).lower()
        hint = "choose a folder you can write to, such as --set run.root=/tmp/runs, or free some space"
        raise HmxError(f"cannot write {what} {path}: {reason}", hint, code) from problem
