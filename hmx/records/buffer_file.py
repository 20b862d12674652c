"""A replay buffer in one file, readable without JAX and safe to open whoever wrote it.

The file is a zip of uncompressed members: `header.json`, sealed, and one `.npy` per array, so that `numpy.load` opens
it too. Every array leads with the transitions, in the order of their slots; empty slots are left out. The header says
what each array is, with its SHA-256, and what the buffer was filled by: the environment and every option of it that
decides what a step does, so that transitions are not played on under other rules.

Only plain members of exactly the size that the header claims are read, and the header is believed only as far as the
file is long: nothing is unpacked, nothing larger than the file is allocated, nothing is pickled.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import struct
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from hmx.config.textfile import quoted
from hmx.errors import ExitCode, HmxError
from hmx.records.artefact import SEAL, check_schema, digest, open_plain, sealed, words
from hmx.records.atomic import sync_folder, writing
from hmx.records.buffer_header import DTYPES, FORMAT, RECORDS, SCHEMA, ArrayForm, Header, from_json, to_json

HEADER = "header.json"
_MAX_HEADER = 4 << 20
_MAX_ARRAYS = 1000
_NAME = re.compile(r"(items|env_states)(/(?!\.\.?(/|$))[A-Za-z0-9_.\[\]'-]{1,100}){0,20}")
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same buffer makes the same file
_NPY = b"\x93NUMPY\x01\x00"

Bytes = bytes | bytearray | memoryview


def write(path: Path, header: Header, arrays: Mapping[str, Bytes]) -> None:
    """Writes a buffer as a whole or not at all; the same content gives the same bytes.

    Args:
        path: the file; one that is there is replaced.
        header: with the forms of exactly these arrays.
        arrays: name -> its numbers, little-endian, the last index fastest.

    Raises:
        HmxError: it cannot be written (exit code 2).
    """
    for name, form in header.arrays.items():
        if len(arrays[name]) != form.nbytes:
            raise ValueError(f"{name}: {len(arrays[name])} bytes for {form}")
    sums = {name: hashlib.sha256(arrays[name]).hexdigest() for name in header.arrays}
    temporary = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    with writing("the buffer", path):
        try:
            with temporary.open("wb") as file:
                with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
                    archive.writestr(zipfile.ZipInfo(HEADER, _EPOCH), sealed(to_json(header, sums)))
                    for name, form in header.arrays.items():
                        with archive.open(zipfile.ZipInfo(f"{name}.npy", _EPOCH), "w", force_zip64=True) as member:
                            member.write(_npy_head(form))
                            member.write(arrays[name])
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
        sync_folder(path.parent)


def is_buffer(path: Path) -> bool:
    """Whether a file looks like a saved buffer; `read` says whether it is one."""
    try:
        with os.fdopen(open_plain(path), "rb") as file:
            return file.read(4) == b"PK\x03\x04"
    except OSError:
        return False


def read(path: Path) -> tuple[Header, dict[str, bytearray]]:
    """A buffer with all its numbers, which are compared with their checksums.

    Raises:
        NewerSchema: a later hmx wrote it (exit code 3).
        HmxError: it is missing, damaged, or no buffer (exit code 3).
    """
    return _read(path, whole=True)


def read_header(path: Path) -> Header:
    """What a buffer says of itself, whose arrays are there in their sizes; errors as of `read`."""
    return _read(path, whole=False)[0]


def _read(path: Path, whole: bool) -> tuple[Header, dict[str, bytearray]]:
    hint = "`hmx train --save-buffer` and `hmx score-buffer RUN --out` write such files; take an intact copy"
    try:
        with os.fdopen(open_plain(path), "rb") as file, zipfile.ZipFile(file) as archive:
            members = _members(archive, os.fstat(file.fileno()).st_size)
            header, sums = _header(archive, members, str(path))
            arrays = {}
            for name, form in header.arrays.items():
                found = _array(archive, members[f"{name}.npy"], name, form, whole)
                if found is None:
                    continue
                if hashlib.sha256(found).hexdigest() != sums[name]:
                    raise ValueError(f"the array {name} has changed")
                arrays[name] = found
            return header, arrays
    except FileNotFoundError:
        raise HmxError(f"there is no buffer {path}", "check the path", ExitCode.ARTEFACT) from None
    except HmxError:
        raise
    except (zipfile.BadZipFile, struct.error, NotImplementedError, EOFError) as problem:
        said = quoted(str(problem).lower()) or "not a zip archive"
        raise HmxError(f"{path} is no saved buffer, or damaged: {said}", hint, ExitCode.ARTEFACT) from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as problem:
        said = words(problem) if isinstance(problem, OSError) else str(problem)
        if not isinstance(problem, OSError) and type(problem) is not ValueError:
            said = "its header is not that of a buffer"
        raise HmxError(f"{path} cannot be read: {quoted(said, 200)}", hint, ExitCode.ARTEFACT) from None


def _members(archive: zipfile.ZipFile, file_size: int) -> dict[str, zipfile.ZipInfo]:
    """The members by name, none of them compressed, and together no larger than the file."""
    infos = archive.infolist()
    if len(infos) > _MAX_ARRAYS:
        raise ValueError(f"it has {len(infos):,} members, more than a buffer can have")
    for info in infos:
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1 or info.file_size != info.compress_size:
            raise ValueError(f"its member {info.filename} is compressed or encrypted, as those of a buffer never are")
    if sum(info.file_size for info in infos) > file_size:
        raise ValueError("its members claim to be larger than the file")
    found = {info.filename: info for info in infos}
    if len(found) < len(infos):
        raise ValueError("two of its members have one name")
    return found


def _header(
    archive: zipfile.ZipFile, members: Mapping[str, zipfile.ZipInfo], name: str
) -> tuple[Header, dict[str, str]]:
    """The header and the checksum of each array; every claim in it is checked."""
    if HEADER not in members:
        raise ValueError(f"it has no {HEADER}: an archive of something else")
    if members[HEADER].file_size > _MAX_HEADER:
        raise ValueError(f"its header has {members[HEADER].file_size:,} bytes")
    with archive.open(members[HEADER]) as member:
        data = json.loads(member.read().decode("utf-8"))
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ValueError(f"its header is not that of a {FORMAT}")
    check_schema(data.get("schema"), SCHEMA, name)
    if data.pop(SEAL, None) != digest(data):
        raise ValueError("its header has changed")
    header, sums = from_json(data)
    _check(header, members)
    return header, sums


def _check(header: Header, members: Mapping[str, zipfile.ZipInfo]) -> None:
    """Refuses a header that contradicts itself or the file."""
    if not header.size <= header.capacity or header.position >= max(header.capacity, 1) or header.num_envs < 1:
        raise ValueError(f"a ring of {header.capacity:,} slots, {header.size:,} filled, next {header.position:,}")
    for name, form in header.arrays.items():
        if name in RECORDS:
            if form != ArrayForm((header.size,), RECORDS[name]):
                raise ValueError(f"{name} is {form.dtype}{list(form.shape)} for {header.size:,} transitions")
        elif _NAME.fullmatch(name) is None:
            raise ValueError(f"an array of the name {name}")
        elif form.shape[:1] != (header.size,):
            raise ValueError(f"{name} has the shape {list(form.shape)} for {header.size:,} transitions")
        info = members.get(f"{name}.npy")
        if info is None or info.file_size != len(_npy_head(form)) + form.nbytes:
            raise ValueError(f"the array {name} is not there in the size that the header claims")
    missing = [name for name in RECORDS if name not in header.arrays]
    if missing:
        raise ValueError(f"the array {missing[0]} is missing")
    if len(members) != len(header.arrays) + 1:
        raise ValueError("it holds more than its header names")


def _array(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str, form: ArrayForm, whole: bool
) -> bytearray | None:
    head = _npy_head(form)
    with archive.open(info) as member:
        if member.read(len(head)) != head:
            raise ValueError(f"the array {name} is not {form.dtype}{list(form.shape)}, as the header claims")
        return _filled(member, form.nbytes, name) if whole else None


def _filled(member: Any, size: int, name: str) -> bytearray:
    found = bytearray(size)
    view, at = memoryview(found), 0
    while at < size:
        part = member.read(min(size - at, 1 << 22))
        if not part:
            raise ValueError(f"the array {name} is cut short")
        view[at : at + len(part)] = part
        at += len(part)
    if member.read(1):  # also makes the archive compare its own checksum
        raise ValueError(f"the array {name} is longer than the header claims")
    return found


def _npy_head(form: ArrayForm) -> bytes:
    """The start of an `.npy` file, version 1.0 of the format (NumPy Enhancement Proposal 1)."""
    shape = f"({form.shape[0]},)" if len(form.shape) == 1 else f"({', '.join(map(str, form.shape))})"
    text = f"{{'descr': '{DTYPES[form.dtype]}', 'fortran_order': False, 'shape': {shape}, }}"
    padding = -(len(_NPY) + 2 + len(text) + 1) % 64
    line = text.encode() + b" " * padding + b"\n"
    return _NPY + struct.pack("<H", len(line)) + line
