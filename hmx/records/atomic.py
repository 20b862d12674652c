"""Write files atomically: after a crash there is either the old file or the new one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from hmx.errors import ExitCode, HmxError


def write_text(path: Path, text: str) -> None:
    """Write a file under a temporary name, flush it to disk and rename it.

    Raises:
        OSError: it cannot be written; the old file, if any, is unchanged.
    """
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, data: bytes) -> None:
    """Write bytes as `write_text` does."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path; what the block writes there is flushed to disk and takes the place of `path`.

    If the block or a call to the file system fails, the temporary file is removed and the old file is unchanged.
    """
    temporary = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    try:
        yield temporary
        sync(temporary)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    sync(path.parent)


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to disk: a rename survives a crash of the machine only then."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def writing(what: str, path: Path, code: ExitCode = ExitCode.USAGE) -> Iterator[None]:
    """Turn an OSError inside the block into an HmxError that names the file and the reason."""
    try:
        yield
    except OSError as problem:
        reason = (problem.strerror or str(problem)).lower()
        hint = "choose a folder you can write to, such as --set run.root=/tmp/runs, or free some space"
        raise HmxError(f"cannot write {what} {path}: {reason}", hint, code) from problem
