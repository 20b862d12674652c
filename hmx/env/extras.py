"""What the environments of optional extras have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import jax
import jax.numpy as jnp

from hmx.errors import nearest

_T = TypeVar("_T")


def near_or_known(name: str, known: Sequence[str], prefix: str) -> str:
    """Return the hint for an unknown name: the nearest id, or all names."""
    near = nearest(name, known)
    return f"did you mean {prefix}{near}?" if near else f"known: {', '.join(known)}"


def settled(state: _T) -> _T:
    """Return a state with the dtypes that steps return: some libraries start fields as Python numbers."""
    fixed: _T = jax.tree.map(lambda leaf: jnp.asarray(leaf).astype(jnp.asarray(leaf).dtype), state)
    return fixed
