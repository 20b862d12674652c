"""Named arrays in one file, readable without JAX and safe to open whoever wrote it.

The file is a zip of uncompressed members: `header.json`, sealed, and one `.npy` per array, so that `numpy.load` opens
it too. The header names every array with its form and its SHA-256, and holds whatever else the file is to say.

Only plain members of exactly the size that the header claims are read, and the header is believed only as far as the
file is long: nothing is unpacked, nothing larger than the file is allocated, nothing is pickled.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import struct
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from hmx.config.textfile import quoted
from hmx.errors import ExitCode, HmxError
from hmx.records.artefact import SEAL, check_schema, digest, open_plain, sealed, words
from hmx.records.atomic import sync_folder, writing

T = TypeVar("T")

HEADER = "header.json"
DTYPES = {
    "bool": "|b1", "int8": "|i1", "uint8": "|u1", "int16": "<i2", "uint16": "<u2", "int32": "<i4", "uint32": "<u4",
    "int64": "<i8", "uint64": "<u8", "float16": "<f2", "float32": "<f4", "float64": "<f8",
}  # fmt: skip
"""The kinds of numbers an array may hold, as `.npy` files name them (little-endian)."""

_MAX_HEADER = 4 << 20
_MAX_ARRAYS = 1000
_MAX_ELEMENTS = 1 << 36
_MAX_RANK = 32
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same content makes the same file
_NPY = b"\x93NUMPY\x01\x00"

Bytes = bytes | bytearray | memoryview


class Kind(NamedTuple):
    """What a file is: it carries the format's name and a schema number."""

    format: str
    schema: int
    noun: str  # in messages
    hint: str  # what to do about one that is missing or damaged


class ArrayForm(NamedTuple):
    """An array without its numbers: `dtype` is a key of `DTYPES`."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        """What its numbers take."""
        return math.prod(self.shape) * int(DTYPES[self.dtype][2:])


def write(path: Path, kind: Kind, body: Mapping[str, Any], arrays: Mapping[str, tuple[ArrayForm, Bytes]]) -> None:
    """Writes a file as a whole or not at all; the same content gives the same bytes.

    Args:
        path: the file; one that is there is replaced.
        kind: what it is.
        body: plain values for the header.
        arrays: name -> form, and numbers, little-endian, the last index fastest.

    Raises:
        HmxError: it cannot be written (exit code 2).
    """
    for name, (form, data) in arrays.items():
        if len(data) != form.nbytes:
            raise ValueError(f"{name}: {len(data)} bytes for {form}")
    rows = [
        {"name": name, "dtype": form.dtype, "shape": list(form.shape), "sha256": hashlib.sha256(data).hexdigest()}
        for name, (form, data) in arrays.items()
    ]
    text = sealed({"format": kind.format, "schema": kind.schema, **body, "arrays": rows})
    temporary = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    with writing(f"the {kind.noun}", path):
        try:
            with temporary.open("wb") as file:
                with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
                    archive.writestr(zipfile.ZipInfo(HEADER, _EPOCH), text)
                    for name, (form, data) in arrays.items():
                        with archive.open(zipfile.ZipInfo(f"{name}.npy", _EPOCH), "w", force_zip64=True) as member:
                            member.write(_npy_head(form))
                            member.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
        sync_folder(path.parent)


def is_archive(path: Path) -> bool:
    """Whether a file looks like one of these; `read` says whether it is one."""
    try:
        with os.fdopen(open_plain(path), "rb") as file:
            return file.read(4) == b"PK\x03\x04"
    except OSError:
        return False


def read(
    path: Path, kind: Kind, judge: Callable[[Mapping[str, Any], dict[str, ArrayForm]], T], whole: bool = True
) -> tuple[T, dict[str, bytearray]]:
    """What a file holds, compared with its checksums.

    Args:
        path: the file.
        kind: what it must be.
        judge: makes of the header, and of the forms of the arrays, what is returned; raises ValueError, TypeError,
            KeyError or AttributeError for what it does not believe. Called before any array is read.
        whole: whether to read the arrays, or only to look whether they are there.

    Raises:
        NewerSchema: a later hmx wrote it (exit code 3).
        HmxError: it is missing, damaged, or something else (exit code 3).
    """
    try:
        with os.fdopen(open_plain(path), "rb") as file, zipfile.ZipFile(file) as archive:
            members = _members(archive, os.fstat(file.fileno()).st_size)
            body = _header(archive, members, kind, str(path))
            rows = body["arrays"]
            forms = {_text(row["name"]): _form(row) for row in rows}
            _check_members(forms, members)
            found = judge(body, forms)
            arrays = {row["name"]: _array(archive, members, row, forms[row["name"]], whole) for row in rows}
            return found, arrays
    except FileNotFoundError:
        raise HmxError(f"there is no {kind.noun} {path}", "check the path", ExitCode.ARTEFACT) from None
    except HmxError:
        raise
    except (zipfile.BadZipFile, struct.error, NotImplementedError, EOFError) as problem:
        said = quoted(str(problem).lower()) or "not a zip archive"
        raise HmxError(f"{path} is no {kind.noun}, or damaged: {said}", kind.hint, ExitCode.ARTEFACT) from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as problem:
        said = words(problem) if isinstance(problem, OSError) else str(problem)
        if not isinstance(problem, OSError) and type(problem) is not ValueError:
            said = f"its header is not that of a {kind.noun}"
        raise HmxError(f"{path} cannot be read: {quoted(said, 200)}", kind.hint, ExitCode.ARTEFACT) from None


def _members(archive: zipfile.ZipFile, file_size: int) -> dict[str, zipfile.ZipInfo]:
    """The members by name, none of them compressed, and together no larger than the file."""
    infos = archive.infolist()
    if len(infos) > _MAX_ARRAYS:
        raise ValueError(f"it has {len(infos):,} members, more than it can have")
    for info in infos:
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1 or info.file_size != info.compress_size:
            raise ValueError(f"its member {info.filename} is compressed or encrypted, as none is that hmx writes")
    if sum(info.file_size for info in infos) > file_size:
        raise ValueError("its members claim to be larger than the file")
    found = {info.filename: info for info in infos}
    if len(found) < len(infos):
        raise ValueError("two of its members have one name")
    return found


def _header(
    archive: zipfile.ZipFile, members: Mapping[str, zipfile.ZipInfo], kind: Kind, name: str
) -> Mapping[str, Any]:
    """The header as written, without its seal."""
    if HEADER not in members:
        raise ValueError(f"it has no {HEADER}: an archive of something else")
    if members[HEADER].file_size > _MAX_HEADER:
        raise ValueError(f"its header has {members[HEADER].file_size:,} bytes")
    with archive.open(members[HEADER]) as member:
        data = json.loads(member.read().decode("utf-8"))
    if not isinstance(data, dict) or data.get("format") != kind.format:
        raise ValueError(f"its header is not that of a {kind.noun}")
    check_schema(data.get("schema"), kind.schema, name)
    if data.pop(SEAL, None) != digest(data):
        raise ValueError("its header has changed")
    return data


def _check_members(forms: Mapping[str, ArrayForm], members: Mapping[str, zipfile.ZipInfo]) -> None:
    """Refuses a header that contradicts the file."""
    for name, form in forms.items():
        info = members.get(f"{name}.npy")
        if info is None or info.file_size != len(_npy_head(form)) + form.nbytes:
            raise ValueError(f"the array {name} is not there in the size that the header claims")
    if len(members) != len(forms) + 1:
        raise ValueError("it holds more than its header names")


def _array(
    archive: zipfile.ZipFile, members: Mapping[str, zipfile.ZipInfo], row: Mapping[str, Any], form: ArrayForm,
    whole: bool,
) -> bytearray:  # fmt: skip
    head, name = _npy_head(form), row["name"]
    found = bytearray(form.nbytes if whole else 0)
    with archive.open(members[f"{name}.npy"]) as member:
        if member.read(len(head)) != head:
            raise ValueError(f"the array {name} is not {form.dtype}{list(form.shape)}, as the header claims")
        if not whole:
            return found
        view, at = memoryview(found), 0
        while part := member.read(min(form.nbytes - at, 1 << 22) or 1):  # the last read has the archive check its sum
            view[at : at + len(part)] = part
            at += len(part)
    if at != form.nbytes or hashlib.sha256(found).hexdigest() != row["sha256"]:
        raise ValueError(f"the array {name} has changed")
    return found


def _npy_head(form: ArrayForm) -> bytes:
    """The start of an `.npy` file, version 1.0 of the format (NumPy Enhancement Proposal 1)."""
    shape = f"({form.shape[0]},)" if len(form.shape) == 1 else f"({', '.join(map(str, form.shape))})"
    text = f"{{'descr': '{DTYPES[form.dtype]}', 'fortran_order': False, 'shape': {shape}, }}"
    padding = -(len(_NPY) + 2 + len(text) + 1) % 64
    line = text.encode() + b" " * padding + b"\n"
    return _NPY + struct.pack("<H", len(line)) + line


def _form(row: Mapping[str, Any]) -> ArrayForm:
    shape, dtype = row["shape"], _text(row["dtype"])
    if dtype not in DTYPES:
        raise ValueError(f"an array of {dtype}")
    if not isinstance(shape, list) or len(shape) > _MAX_RANK:
        raise ValueError(f"an array of the shape {str(shape)[:80]}")
    if any(type(n) is not int or n < 0 for n in shape):
        raise TypeError
    # in this order, so that what is multiplied is not large
    if max(shape, default=0) > _MAX_ELEMENTS or math.prod(shape) > _MAX_ELEMENTS:
        raise ValueError(f"an array of the shape {str(shape)[:80]}, more than {_MAX_ELEMENTS:,} elements")
    return ArrayForm(tuple(shape), dtype)


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError
    return value
