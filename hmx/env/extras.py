"""What the environments of optional extras have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import jax
import jax.numpy as jnp

from hmx.config.textfile import quoted
from hmx.errors import HmxError, nearest

_T = TypeVar("_T")


def named(env_id: str, known: Sequence[str], library: str = "") -> str:
    """Return the part of an id `extra/NAME` that names an environment of a library, called as the extra by default.

    Raises:
        HmxError: the library has none of this name; the hint is the nearest id, or all names.
    """
    extra, _, name = env_id.partition("/")
    if name not in known:
        near = nearest(name, known)
        hint = f"did you mean {extra}/{near}?" if near else f"known: {', '.join(known)}"
        raise HmxError(f"{library or extra} has no environment {quoted(name)}", hint)
    return name


def settled(state: _T) -> _T:
    """Return a state with the dtypes that steps return: some libraries start fields as Python numbers."""
    fixed: _T = jax.tree.map(lambda leaf: jnp.asarray(leaf).astype(jnp.asarray(leaf).dtype), state)
    return fixed
