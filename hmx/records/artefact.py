"""Read and write the sealed JSON files of a run; distinguish missing, damaged, unreadable and newer files.

A sealed file has a field `sha256` over the rest of it, so that a changed byte is detected even if the result is valid
JSON. Only regular files are read and no link is followed, since a run folder may come from a stranger.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from hmx.errors import ExitCode, HmxError
from hmx.records import atomic

SEAL = "sha256"
REPORT_SCHEMA = 3  # of the files in reports/; sealed since 2, with the id of the run since 3
REPORT_SEALED_FROM = 2
MAX_BYTES = 8 << 20  # the largest file that is read as a whole

_TRIES = 3
_RETRY_SECONDS = 0.2
# Errors of a missing or wrong file. Any other error, such as EIO or EMFILE, does not depend on its content.
_DAMAGE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EINVAL, errno.EFBIG, errno.ENAMETOOLONG, 0)

T = TypeVar("T")


class NewerSchema(HmxError):
    """The file was written by a later hmx; it is not damaged."""


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
        with os.fdopen(open_plain(path), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > limit:
                raise OSError(errno.EFBIG, f"{size:,} bytes, more than the maximum of {limit:,}")
            return file.read(limit + 1)

    return retrying(path, read)


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


def words(problem: Exception) -> str:
    """Return the text of a system error, without its number and path."""
    return str((isinstance(problem, OSError) and problem.strerror) or problem).lower()


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a regular file of any size, as 64 hex digits; errors as of `read_plain`."""

    def read() -> str:
        with os.fdopen(open_plain(path), "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    return retrying(path, read)


def read_json(path: Path, schema: int, missing: str, hint: str, sealed_from: int | None = None) -> Any:
    """Return the content of a file with a `schema` number, without its seal.

    An existing seal must be correct, and from schema `sealed_from` on it is required. `missing` is the message
    for a missing file, `hint` that for a missing or damaged one.

    Raises:
        NewerSchema: it has a newer schema (exit code 3).
        Unreadable: the system fails to read it (3).
        HmxError: it is missing or damaged (3).
    """
    try:
        data = json.loads(read_plain(path).decode("utf-8"))
    except FileNotFoundError:
        raise HmxError(missing, hint, ExitCode.ARTEFACT) from None
    except (OSError, ValueError, RecursionError) as problem:
        why = str(problem) if isinstance(problem, json.JSONDecodeError) else words(problem)
        raise HmxError(f"cannot read {path}: {why}", hint, ExitCode.ARTEFACT) from None
    if not isinstance(data, dict):
        return data
    number = data.get("schema")
    check_schema(number, schema, str(path))
    needed = sealed_from is not None and type(number) is int and number >= sealed_from
    if (SEAL in data or needed) and data.pop(SEAL, None) != digest(data):
        raise HmxError(f"{path} is damaged: its content has changed", hint, ExitCode.ARTEFACT)
    return data


def check_schema(number: object, newest: int, what: str) -> None:
    """Raise a NewerSchema (exit code 3) if the schema `number` is that of a later version."""
    if type(number) is int and number > newest:
        message = f"{what} has schema {number}, written by a newer hmx; this hmx reads up to schema {newest}"
        raise NewerSchema(message, "upgrade hmx", ExitCode.ARTEFACT)


def is_foreign(found: str, run_id: str) -> bool:
    """Return whether a file's id of its run is that of another run; files of old schemas have none."""
    return bool(found and run_id and found != run_id)


def of_another_run(found: str, run_id: str) -> str:
    """Return the message for a file that `is_foreign`."""
    return f"belongs to another run (id {found[:40]} instead of {run_id[:40]})"


def sealed(data: Mapping[str, object]) -> str:
    """Return the text of a sealed file with that content."""
    return json.dumps({**data, SEAL: digest(data)}, indent=1) + "\n"


def write_sealed(path: Path, data: Mapping[str, object]) -> None:
    """Write a sealed file atomically."""
    atomic.write_text(path, sealed(data))


def digest(data: Mapping[str, object]) -> str:
    """Return the SHA-256 of the canonical JSON of `data`, as 64 hex digits."""
    canonical = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()
