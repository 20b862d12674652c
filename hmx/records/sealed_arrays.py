"""Named arrays in one file, readable without JAX and safe to open if it comes from a stranger.

The file is a zip of uncompressed members, as `numpy.load` opens it: `header.json`, sealed, and one `.npy` per array.
The header holds the form and the SHA-256 of every array, and further values of the kind of file.

Only uncompressed members of exactly the size that the header states are read, and all of them together are no larger
than the file: nothing is unpacked, nothing larger than the file is allocated, nothing is pickled.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import struct
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from hmx.config.files import open_plain, words
from hmx.config.textfile import quoted
from hmx.errors import ExitCode, HmxError
from hmx.records.artefact import SEAL, check_schema, digest, sealed
from hmx.records.atomic import replacing, writing
from hmx.records.plain import typed

T = TypeVar("T")
Bytes = bytes | bytearray | memoryview

HEADER = "header.json"
DTYPES = {
    "bool": "|b1", "int8": "|i1", "uint8": "|u1", "int16": "<i2", "uint16": "<u2", "int32": "<i4", "uint32": "<u4",
    "int64": "<i8", "uint64": "<u8", "float16": "<f2", "float32": "<f4", "float64": "<f8",
}  # fmt: skip
"""The types of numbers in arrays, as `.npy` files name them (little-endian)."""

_MAX_HEADER = 4 << 20
_MAX_ARRAYS = 1000
_MAX_ELEMENTS = 1 << 36
_MAX_RANK = 32
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same content makes the same file
_NPY = b"\x93NUMPY\x01\x00"


class ArrayForm(NamedTuple):
    """Shape and type of an array; `dtype` is a key of `DTYPES`."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        """Return the size of its data."""
        return math.prod(self.shape) * int(DTYPES[self.dtype][2:])


class StoredArray(NamedTuple):
    """An array in a file; the data are little-endian, with the last index fastest."""

    form: ArrayForm
    data: Bytes


@dataclasses.dataclass(frozen=True)
class FileKind(Generic[T]):
    """A kind of file: the name of its format, and the newest schema that can be read."""

    format: str
    schema: int
    noun: str  # in messages
    hint: str  # what to do if it is missing or damaged
    parse: Callable[[Mapping[str, Any], dict[str, ArrayForm]], T]
    """Makes a header from the values of the file and the forms of its arrays, before any array is read; raises
    ValueError, TypeError, KeyError or AttributeError to refuse them."""

    def write(self, path: Path, body: Mapping[str, Any], arrays: Mapping[str, StoredArray]) -> None:
        """Write a file atomically, replacing an existing one; the same content gives the same bytes.

        An HmxError (exit code 2) gives the reason if it cannot be written.
        """
        for name, array in arrays.items():
            if len(array.data) != array.form.nbytes:
                raise ValueError(f"{name}: {len(array.data)} bytes for {array.form}")
        rows = [
            {"name": name, "dtype": form.dtype, "shape": list(form.shape), "sha256": hashlib.sha256(data).hexdigest()}
            for name, (form, data) in arrays.items()
        ]
        text = sealed({"format": self.format, "schema": self.schema, **body, "arrays": rows})
        with writing(f"the {self.noun}", path), replacing(path) as file, zipfile.ZipFile(file, "w") as archive:
            archive.writestr(zipfile.ZipInfo(HEADER, _EPOCH), text)
            for name, (form, data) in arrays.items():
                with archive.open(zipfile.ZipInfo(f"{name}.npy", _EPOCH), "w", force_zip64=True) as member:
                    member.write(_npy_head(form))
                    member.write(data)

    def read(self, path: Path, whole: bool = True, in_memory: bool = True) -> tuple[T, dict[str, StoredArray]]:
        """Read a file and compare its content with the checksums.

        Without `whole`, only the existence of the arrays is checked, and their data are empty; without `in_memory` they
        are compared with their checksums, but not kept.

        Raises:
            NewerSchema: a later hmx wrote it (exit code 3).
            HmxError: it is missing, damaged, or another kind of file (exit code 3).
        """
        try:
            with os.fdopen(open_plain(path), "rb") as file, zipfile.ZipFile(file) as archive:
                return self._read(archive, os.fstat(file.fileno()).st_size, str(path), whole, in_memory)
        except FileNotFoundError:
            raise HmxError(f"{self.noun} {path} does not exist", "check the path", ExitCode.ARTEFACT) from None
        except HmxError:
            raise
        except (zipfile.BadZipFile, struct.error, NotImplementedError, EOFError) as problem:
            why = quoted(str(problem).lower()) or "not a zip archive"
            message = f"{path} is not a {self.noun}, or it is damaged: {why}"
            raise HmxError(message, self.hint, ExitCode.ARTEFACT) from None
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as problem:
            why = words(problem) if isinstance(problem, OSError) else str(problem)
            if not isinstance(problem, OSError) and type(problem) is not ValueError:
                why = f"its header is not that of a {self.noun}"
            raise HmxError(f"cannot read {path}: {quoted(why, 200)}", self.hint, ExitCode.ARTEFACT) from None

    def _read(
        self, archive: zipfile.ZipFile, file_size: int, name: str, whole: bool, in_memory: bool
    ) -> tuple[T, dict[str, StoredArray]]:
        members = _members(archive, file_size)
        body = self._header(archive, members, name)
        rows = {typed(str, row["name"]): row for row in body["arrays"]}
        forms = {name: _form(row) for name, row in rows.items()}
        for name, form in forms.items():
            info = members.get(f"{name}.npy")
            if info is None or info.file_size != len(_npy_head(form)) + form.nbytes:
                raise ValueError(f"the array {name} does not have the size that the header states")
        if len(members) != len(body["arrays"]) + 1:
            raise ValueError("it contains more than its header names")
        found = self.parse(body, forms)
        return found, {
            name: StoredArray(form, _data(archive, name, form, rows[name]["sha256"] if whole else None, in_memory))
            for name, form in forms.items()
        }

    def _header(self, archive: zipfile.ZipFile, members: Mapping[str, zipfile.ZipInfo], name: str) -> Mapping[str, Any]:
        """Return the header without its seal."""
        if HEADER not in members:
            raise ValueError(f"it has no {HEADER}: another kind of archive")
        if members[HEADER].file_size > _MAX_HEADER:
            raise ValueError(f"its header has {members[HEADER].file_size:,} bytes")
        with archive.open(members[HEADER]) as member:
            data = json.loads(member.read().decode("utf-8"))
        if not isinstance(data, dict) or data.get("format") != self.format:
            raise ValueError(f"its header is not that of a {self.noun}")
        check_schema(data.get("schema"), self.schema, name)
        if data.pop(SEAL, None) != digest(data):
            raise ValueError("its header has changed")
        return data


def _members(archive: zipfile.ZipFile, file_size: int) -> dict[str, zipfile.ZipInfo]:
    """Return the members by name; none is compressed, and together they are no larger than the file."""
    infos = archive.infolist()
    if len(infos) > _MAX_ARRAYS:
        raise ValueError(f"it has {len(infos):,} members, more than it can have")
    for info in infos:
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1 or info.file_size != info.compress_size:
            raise ValueError(f"its member {info.filename} is compressed or encrypted")
    if sum(info.file_size for info in infos) > file_size:
        raise ValueError("its members claim to be larger than the file")
    found = {info.filename: info for info in infos}
    if len(found) < len(infos):
        raise ValueError("two of its members have the same name")
    return found


def _data(archive: zipfile.ZipFile, name: str, form: ArrayForm, sha256: str | None, in_memory: bool) -> bytearray:
    """Return the data of an array if they are to be kept, compared with its checksum if there is one."""
    head, found, at = _npy_head(form), bytearray(form.nbytes if sha256 is not None and in_memory else 0), 0
    digest_of_data = hashlib.sha256()
    with archive.open(f"{name}.npy") as member:
        if member.read(len(head)) != head:
            raise ValueError(f"the array {name} is not {form.dtype}{list(form.shape)}, as the header states")
        if sha256 is None:
            return found
        view = memoryview(found)
        # The last, empty read makes the archive compare its own checksum.
        while part := member.read(min(form.nbytes - at, 1 << 22) or 1):
            digest_of_data.update(part)
            if in_memory:
                view[at : at + len(part)] = part
            at += len(part)
    if at != form.nbytes or digest_of_data.hexdigest() != sha256:
        raise ValueError(f"the array {name} has changed")
    return found


def _npy_head(form: ArrayForm) -> bytes:
    """Return the start of an `.npy` file, version 1.0 of the format (NumPy Enhancement Proposal 1)."""
    line = f"{{'descr': '{DTYPES[form.dtype]}', 'fortran_order': False, 'shape': {form.shape}, }}".encode()
    line += b" " * (-(len(_NPY) + 2 + len(line) + 1) % 64) + b"\n"
    return _NPY + struct.pack("<H", len(line)) + line


def _form(row: Mapping[str, Any]) -> ArrayForm:
    shape, dtype = row["shape"], typed(str, row["dtype"])
    if dtype not in DTYPES:
        raise ValueError(f"an array of {dtype}")
    if not isinstance(shape, list) or len(shape) > _MAX_RANK:
        raise ValueError(f"an array of the shape {str(shape)[:80]}")
    sizes = tuple(typed(int, n) for n in shape)
    # In this order, so that no large numbers are multiplied.
    if max(sizes, default=0) > _MAX_ELEMENTS or math.prod(sizes) > _MAX_ELEMENTS:
        raise ValueError(f"an array of the shape {str(shape)[:80]}, more than {_MAX_ELEMENTS:,} elements")
    return ArrayForm(sizes, dtype)
