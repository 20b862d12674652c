"""The installed version of hmx; optional packages: how to install them, and the error if one is missing."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

from hmx.errors import HmxError

_CLONE = Path(__file__).parents[2]


def version() -> str:
    """Return the version of the installed package, or of the source tree."""
    from importlib import metadata

    try:
        return metadata.version("hmx")
    except metadata.PackageNotFoundError:
        import tomllib

        source = _CLONE / "pyproject.toml"
        return str(tomllib.loads(source.read_text())["project"]["version"]) if source.exists() else "unknown"


def install(extra: str) -> str:
    """Return the command that installs an extra: hmx is not on a package index, so it is installed from a clone."""
    if (_CLONE / "pyproject.toml").is_file():
        # -P: `pip` would import a `types.py` of the folder that the user is in
        return shlex.join([sys.executable, "-P", "-m", "pip", "install", "-e", f"{_CLONE}[{extra}]"])
    return f"in a clone of hmx: pip install -e '.[{extra}]'"


@contextlib.contextmanager
def needed(extra: str, what: str = "") -> Iterator[None]:
    """Raise an error with the command to install an extra if an import inside fails.

    `what` needs it; by default the environments `extra/...`.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        message = f"{what or f'{extra}/...'} needs a package that is not installed: {error.name}"
        raise HmxError(message, install(extra)) from error
