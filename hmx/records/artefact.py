"""Read and write the sealed JSON files of a run; distinguish missing, damaged, unreadable and newer files.

A sealed file has a field `sha256` over the rest of it, so that a changed byte is detected even if the result is valid
JSON.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hmx.config.files import read_plain, words
from hmx.errors import ExitCode, HmxError
from hmx.records import atomic

SEAL = "sha256"
REPORT_SCHEMA = 3  # of the files in reports/; sealed since 2, with the run id since 3
REPORT_SEALED_FROM = 2


class NewerSchema(HmxError):
    """The file was written by a later hmx; it is not damaged."""


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


def foreign(found: str, run_id: str) -> str:
    """Return the problem of a file that names another run than `run_id`, "" if it does not; old schemas name none."""
    other = found and run_id and found != run_id
    return f"belongs to another run (id {found[:40]} instead of {run_id[:40]})" if other else ""


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
