"""Reading and writing the JSON files that a run is made of: missing, damaged and newer ones are told apart.

A file is sealed by a field `sha256` over the rest of it, so that a changed byte is noticed even where what is
left is valid JSON. Only plain files are read: no link is followed, since a run folder may come from a stranger.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hmx.errors import ExitCode, HmxError
from hmx.records import atomic

SEAL = "sha256"
REPORT_SCHEMA = 2  # of the files in reports/; sealed since 2
MAX_BYTES = 8 << 20  # the largest file that is read as a whole


class NewerSchema(HmxError):
    """The file was written by a later hmx: nothing is wrong with it."""


def read_plain(path: Path, limit: int = MAX_BYTES) -> bytes:
    """The content of a regular file, which `path` itself must be: no link, no folder, no pipe.

    Raises:
        OSError: it is not there, is something else, or has more than `limit` bytes.
    """
    with os.fdopen(open_plain(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise OSError(errno.EFBIG, f"{size:,} bytes, more than the {limit:,} such a file can have")
        return file.read(limit + 1)


def open_plain(path: Path) -> int:
    """A file descriptor for reading a regular file; see `read_plain`."""
    try:
        # Not to wait, should it be a pipe.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as problem:
        if problem.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "a link in place of a file") from None
        raise
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return handle
    os.close(handle)
    if stat.S_ISDIR(mode):
        raise OSError(errno.EISDIR, "a folder in place of a file")
    raise OSError(errno.EINVAL, "not a regular file")


def words(problem: Exception) -> str:
    """What an error of the system says, without its number and path."""
    return str((isinstance(problem, OSError) and problem.strerror) or problem).lower()


def sha256_of(path: Path) -> str:
    """SHA-256 of a regular file, as 64 hex digits.

    Raises:
        OSError: see `read_plain`; the size does not matter here.
    """
    with os.fdopen(open_plain(path), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_json(path: Path, schema: int, missing: str, hint: str, sealed_from: int | None = None) -> Any:
    """The content of a file that carries a `schema` number, without its seal.

    Args:
        path: the file.
        schema: the newest number that can be read.
        missing: what to say if there is no such file.
        hint: what to do if it is missing or damaged.
        sealed_from: the schema from which on a seal must be there; one that is there always has to be right.

    Raises:
        NewerSchema: it is of a newer schema (exit code 3).
        HmxError: it is missing or damaged (exit code 3).
    """
    try:
        data = json.loads(read_plain(path).decode("utf-8"))
    except FileNotFoundError:
        raise HmxError(missing, hint, ExitCode.ARTEFACT) from None
    except (OSError, ValueError, RecursionError) as problem:
        said = str(problem) if isinstance(problem, json.JSONDecodeError) else words(problem)
        raise HmxError(f"{path} cannot be read: {said}", hint, ExitCode.ARTEFACT) from None
    if not isinstance(data, dict):
        return data
    number = data.get("schema")
    check_schema(number, schema, str(path))
    needed = sealed_from is not None and type(number) is int and number >= sealed_from
    if (SEAL in data or needed) and data.pop(SEAL, None) != digest(data):
        raise HmxError(f"{path} is damaged: its content has changed", hint, ExitCode.ARTEFACT)
    return data


def check_schema(number: Any, newest: int, what: str) -> None:
    """Refuses what a later version wrote.

    Raises:
        NewerSchema: `number` is higher than `newest` (exit code 3).
    """
    if type(number) is int and number > newest:
        said = f"{what} has schema {number}, written by a newer hmx; this one reads schema {newest}"
        raise NewerSchema(said, "upgrade hmx (pip install --upgrade hmx)", ExitCode.ARTEFACT)


def sealed(data: Mapping[str, Any]) -> str:
    """The text of a sealed file with that content."""
    return json.dumps({**data, SEAL: digest(data)}, indent=1) + "\n"


def write_sealed(path: Path, data: Mapping[str, Any]) -> None:
    """Writes a sealed file as a whole or not at all.

    Raises:
        OSError: it cannot be written; the old one is untouched.
    """
    atomic.write_text(path, sealed(data))


def digest(data: Mapping[str, Any]) -> str:
    """SHA-256 over the canonical JSON of `data`, as 64 hex digits."""
    canonical = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()
