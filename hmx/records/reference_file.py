"""The reference policy of a run (`ppo.ref`) in one file, so that the run does not depend on where it came from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hmx.records.plain import typed
from hmx.records.sealed_arrays import FileKind

RUN_ID, SOURCE = "run_id", "source"
"""Values of the header: the id of the run that the file is in, and the checkpoint or exported policy it came from."""


def _parse(body: Mapping[str, object], forms: object) -> dict[str, str]:
    return typed(dict[str, str], {key: body[key] for key in (RUN_ID, SOURCE)})


KIND = FileKind("hmx reference policy", 1, "reference policy", "put back the file from a copy of the run", _parse)


def copy(path: Path, target: Path, run_id: str) -> None:
    """Copy a reference policy into the folder of another run, with its id; errors as of `FileKind`."""
    header, arrays = KIND.read(path)
    KIND.write(target, {**header, RUN_ID: run_id}, arrays)
