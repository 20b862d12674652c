"""What the environments of optional extras have in common."""

from __future__ import annotations

import contextlib
import difflib
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import jax
import jax.numpy as jnp

from hmx.errors import HmxError

_T = TypeVar("_T")

_CLONE = Path(__file__).parents[2]


def install(extra: str) -> str:
    """Return the command that installs an extra: hmx is on no package index, so it is installed from a clone."""
    if (_CLONE / "pyproject.toml").is_file():
        return shlex.join([sys.executable, "-m", "pip", "install", "-e", f"{_CLONE}[{extra}]"])
    return f"in a clone of hmx: pip install '.[{extra}]'"


@contextlib.contextmanager
def needed(extra: str) -> Iterator[None]:
    """Raise an error with the command to install an extra if an import inside fails.

    Raises:
        HmxError: a package is not installed; the hint installs it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise HmxError(f"{extra}/... needs a package that is not installed: {error.name}", install(extra)) from error


def near_or_known(name: str, known: Sequence[str], prefix: str) -> str:
    """Return the hint for an unknown name: similar ids, or all of them."""
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
    return f"near: {', '.join(prefix + other for other in near)}" if near else f"known: {', '.join(known)}"


def settled(state: _T) -> _T:
    """Return a state with the dtypes that steps return: some libraries start fields as Python numbers."""
    fixed: _T = jax.tree.map(lambda leaf: jnp.asarray(leaf).astype(jnp.asarray(leaf).dtype), state)
    return fixed
