"""Names of run folders."""

from __future__ import annotations

import re

_RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def is_run_name(name: str) -> bool:
    """Return whether `name` is valid for a run folder: letters, digits, `.`, `_`, `-`, and no path."""
    return _RUN_NAME.fullmatch(name) is not None


def clean_run_name(name: str) -> str:
    """Return a valid name for a run folder that resembles `name`."""
    cleaned = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-._")[:100]
    return cleaned or "my-run"
