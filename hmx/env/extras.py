"""What the environments of optional extras have in common."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterator, Sequence
from typing import TypeVar

import jax
import jax.numpy as jnp

from hmx.errors import HmxError

_T = TypeVar("_T")


def install(extra: str) -> str:
    """The command that brings an extra."""
    return f"pip install 'hmx[{extra}]'"


@contextlib.contextmanager
def needed(extra: str) -> Iterator[None]:
    """For the import of what an extra brings.

    Raises:
        HmxError: a package is not installed; the hint installs it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise HmxError(f"{extra}/... needs a package that is not installed: {error.name}", install(extra)) from error


def near_or_known(name: str, known: Sequence[str], prefix: str) -> str:
    """The hint for a name that there is not: near ones as ids, or else all."""
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
    return f"near: {', '.join(prefix + other for other in near)}" if near else f"known: {', '.join(known)}"


def settled(state: _T) -> _T:
    """A state in types that no step changes: some libraries start fields as Python numbers, which would."""
    fixed: _T = jax.tree.map(lambda leaf: jnp.asarray(leaf).astype(jnp.asarray(leaf).dtype), state)
    return fixed
