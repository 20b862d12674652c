"""Sealed archives of arrays for `fuzz_readers.py`: good ones, and their trees put together again with right checksums.

The tree of an archive is `{"header": ..., "members": {name: bytes as Latin-1 text}, "compress": 0}`. An attacker can
also seal a hostile file, so these files have correct seals, CRCs and SHA-256 where possible.
"""

from __future__ import annotations

import hashlib
import io
import json
import warnings
import zipfile
from pathlib import Path
from typing import Any

from hmx.config.schema import Config
from hmx.records import artefact, buffer_file, score_file
from hmx.records.buffer_file import RECORDS, BufferHeader, settings_of
from hmx.records.score_file import COLUMNS, ScoreHeader
from hmx.records.sealed_arrays import DTYPES, HEADER, ArrayForm, StoredArray

_EPOCH = (1980, 1, 1, 0, 0, 0)
_LONGEST = 10_000  # characters of a member's name; the format ends at 65,535 bytes


def good_buffers(folder: Path) -> list[bytes]:
    """Saved buffers of the default environment with three transitions and with none."""
    found = []
    for size in (3, 0):
        forms = {name: ArrayForm((size,), dtype) for name, dtype in RECORDS.items()}
        forms["items/obs_t"] = ArrayForm((size, 1, 4), "float32")
        forms["env_states/core"] = ArrayForm((size, 2), "int32")
        header = BufferHeader(
            env="hackmatrix", settings=settings_of(Config()), num_actions=28, num_agents=1, obs_shape=(4,),
            obs_dtype="float32", capacity=8, size=size, position=size, num_added=size, num_envs=1, td_max=2.5,
            gamma=0.9, run="a-run", update=7, created="2026-01-01T00:00:00Z",
        )  # fmt: skip
        path = folder / "buffer.npz"
        buffer_file.write(path, header, _filled(forms))
        found.append(path.read_bytes())
    return found


def good_scores(folder: Path) -> list[bytes]:
    """Finished and unfinished scores."""
    found = []
    for size in (4, 2):
        header = ScoreHeader(
            request="ab" * 32, size=size, total=4, horizon=20, lengths=(3, 9), seconds=1.5, compile_seconds=2.0
        )
        sizes = {"2": 2, "K": 3, "A": 1}
        forms = {
            name: ArrayForm((size, *(sizes[axis] for axis in axes)), dtype) for name, (dtype, axes) in COLUMNS.items()
        }
        path = folder / "scores.npz"
        score_file.write(path, header, _filled(forms))
        found.append(path.read_bytes())
    return found


def _filled(forms: dict[str, ArrayForm]) -> dict[str, StoredArray]:
    return {name: StoredArray(form, bytes(i % 256 for i in range(form.nbytes))) for name, form in forms.items()}


def parse(data: bytes) -> Any:
    """The tree of an archive."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name).decode("latin-1") for name in archive.namelist() if name != HEADER}
        return {"header": json.loads(archive.read(HEADER)), "members": members, "compress": 0}


def rebuild(tree: Any) -> bytes:
    """Return an archive again; any other value becomes the header of a new archive."""
    whole = tree if isinstance(tree, dict) else {"header": tree}
    header, members = whole.get("header"), whole.get("members")
    members = {name: _as_bytes(text) for name, text in members.items()} if isinstance(members, dict) else {}
    if isinstance(header, dict):
        _right_sums(header.get("arrays"), members)
    out = io.BytesIO()
    how = zipfile.ZIP_DEFLATED if whole.get("compress") else zipfile.ZIP_STORED
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w", how) as archive:
        warnings.simplefilter("ignore")  # of two members with one name, which a zero byte in it can make
        for name, data in {HEADER: _sealed(header), **members}.items():
            entry = zipfile.ZipInfo(name[:_LONGEST], _EPOCH)
            entry.compress_type = how
            archive.writestr(entry, data)
    return out.getvalue()


def _as_bytes(text: Any) -> bytes:
    return text.encode("latin-1", "replace") if isinstance(text, str) else json.dumps(text).encode()


def _sealed(header: Any) -> bytes:
    if isinstance(header, dict):
        try:
            return artefact.sealed({k: v for k, v in header.items() if k != artefact.SEAL}).encode(
                errors="surrogatepass"
            )
        except (ValueError, TypeError, RecursionError):
            pass
    return json.dumps(header).encode(errors="surrogatepass")


def _right_sums(rows: Any, members: dict[str, bytes]) -> None:
    """Makes the arrays what their rows say, where these say something that an array can be."""
    for row in rows if isinstance(rows, list) else ():
        if not isinstance(row, dict) or not isinstance(row.get("sha256"), str):
            continue
        name, shape, dtype = f"{row.get('name')}.npy", row.get("shape"), row.get("dtype")
        if name not in members or not isinstance(shape, list) or not isinstance(dtype, str) or dtype not in DTYPES:
            continue
        if not all(type(n) is int and 0 <= n < 100 for n in shape) or len(shape) > 3:
            continue
        form = ArrayForm(tuple(shape), dtype)
        numbers = members[name][128:].ljust(form.nbytes, b"\x7f")[: form.nbytes]
        members[name] = _npy(form) + numbers
        row["sha256"] = hashlib.sha256(numbers).hexdigest()


def _npy(form: ArrayForm) -> bytes:
    """The head of an .npy file, 128 bytes for every short shape."""
    text = f"{{'descr': '{DTYPES[form.dtype]}', 'fortran_order': False, 'shape': {form.shape}, }}"
    return b"\x93NUMPY\x01\x00\x76\x00" + text.ljust(117).encode() + b"\n"
