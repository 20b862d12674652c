"""Reading the JSON files that a run is made of: missing, damaged and newer ones are told apart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hmx.errors import ExitCode, HmxError


def read_json(path: Path, schema: int, missing: str, hint: str) -> Any:
    """The content of a file that carries a `schema` number.

    Args:
        path: the file.
        schema: the newest number that can be read.
        missing: what to say if there is no such file.
        hint: what to do if it is missing or damaged.

    Raises:
        HmxError: it is missing, damaged or of a newer schema (exit code 3).
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise HmxError(missing, hint, ExitCode.ARTEFACT) from None
    except (OSError, ValueError) as problem:
        raise HmxError(f"{path} cannot be read: {problem}", hint, ExitCode.ARTEFACT) from None
    if isinstance(data, dict) and isinstance(data.get("schema"), int) and data["schema"] > schema:
        words = f"{path} has schema {data['schema']}, written by a newer hmx; this one reads schema {schema}"
        raise HmxError(words, "upgrade hmx (pip install --upgrade hmx)", ExitCode.ARTEFACT)
    return data
