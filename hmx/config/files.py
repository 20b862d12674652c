"""Open files and folders that may come from a stranger: regular ones only, up to a size, and no link is followed."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from hmx.errors import ExitCode, HmxError

MAX_BYTES = 8 << 20  # the largest file that is read as a whole

_TRIES = 3
_RETRY_SECONDS = 0.2
# Errors of a missing or wrong file. Any other error, such as EIO or EMFILE, does not depend on its content.
_DAMAGE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EINVAL, errno.EFBIG, errno.ENAMETOOLONG, 0)

T = TypeVar("T")


class Unreadable(HmxError):
    """The file cannot be read at the moment; its content is unknown."""


def retrying(path: Path, read: Callable[[], T]) -> T:
    """Call `read` and return its result; try again if the system fails to read the file.

    Raises:
        Unreadable: the system still fails after several tries (exit code 3).
        OSError: the file is missing or not a regular file.
    """
    for left in range(_TRIES - 1, -1, -1):
        try:
            return read()
        except OSError as problem:
            if problem.errno in _DAMAGE:
                raise
            if not left or problem.errno in (errno.EACCES, errno.EPERM):
                hint = "check the disk, the permissions and the open-file limit, then try again; nothing was changed"
                raise Unreadable(f"cannot read {path}: {words(problem)}", hint, ExitCode.ARTEFACT) from problem
            time.sleep(_RETRY_SECONDS)
    raise AssertionError


def read_plain(path: Path, limit: int = MAX_BYTES) -> bytes:
    """Return the content of a regular file; `path` must not be a link, a folder or a pipe.

    Raises:
        OSError: it is missing, is not a regular file, or has more than `limit` bytes.
        Unreadable: the system fails to read it.
    """

    def read() -> bytes:
        with os.fdopen(open_limited(path, limit), "rb") as file:
            return file.read(limit)

    return retrying(path, read)


def open_limited(path: Path, limit: int) -> int:
    """Return a file descriptor of a regular file of at most `limit` bytes; see `read_plain`."""
    handle = open_plain(path)
    size = os.fstat(handle).st_size
    if size <= limit:
        return handle
    os.close(handle)
    raise OSError(errno.EFBIG, f"{size:,} bytes, more than the maximum of {limit:,}")


def open_plain(path: Path, flags: int = os.O_RDONLY) -> int:
    """Return a file descriptor of a regular file; see `read_plain`."""
    try:
        # Non-blocking, in case it is a pipe.
        handle = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as problem:
        if problem.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "a link instead of a file") from None
        raise
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return handle
    os.close(handle)
    if stat.S_ISDIR(mode):
        raise OSError(errno.EISDIR, "a folder instead of a file")
    raise OSError(errno.EINVAL, "not a regular file")


def names_in(folder: Path) -> list[str]:
    """Return the names in a folder inside that of a run or study; it must not be a link, which may lead out.

    Raises:
        FileNotFoundError: it is missing.
        NotADirectoryError: it is a link, or not a folder.
        OSError: it cannot be read.
    """
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as problem:
        if problem.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
        what = "a link instead of a folder" if folder.is_symlink() else "not a folder"
        raise NotADirectoryError(errno.ENOTDIR, what) from None
    try:
        return os.listdir(handle)
    finally:
        os.close(handle)


def make_folder(folder: Path, parents: bool = False) -> None:
    """Make a folder inside that of a run or study, unless it exists; errors as of `names_in`."""
    folder.mkdir(parents=parents, exist_ok=True)
    names_in(folder)


def words(problem: Exception) -> str:
    """Return the text of a system error, without its number and path."""
    return str((isinstance(problem, OSError) and problem.strerror) or problem).lower()


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a regular file of any size, as 64 hex digits; errors as of `read_plain`."""

    def read() -> str:
        with os.fdopen(open_plain(path), "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    return retrying(path, read)
