"""Schedules: pure functions of the progress of a run."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp

from hmx.types import Array

Schedule = Callable[[Array], Array]
"""Progress in [0, 1] -> value; progress outside is clipped."""


def constant(start: float) -> Schedule:
    """The same value throughout."""
    return lambda progress: jnp.full_like(jnp.asarray(progress, jnp.float32), start)


def linear(start: float, end: float) -> Schedule:
    """A straight line from `start` to `end`."""
    return lambda progress: start + (end - start) * _clip(progress)


def cosine(start: float, end: float) -> Schedule:
    """Half a cosine from `start` to `end` (Loshchilov & Hutter 2017, arXiv:1608.03983, eq. 5, one cycle)."""
    return lambda progress: end + 0.5 * (start - end) * (1.0 + jnp.cos(jnp.pi * _clip(progress)))


def make_schedule(name: str, start: float, end: float) -> Schedule:
    """The schedule called `constant` (which ignores `end`), `linear` or `cosine`.

    Raises:
        KeyError: any other name.
    """
    return {"constant": constant(start), "linear": linear(start, end), "cosine": cosine(start, end)}[name]


def _clip(progress: Array) -> Array:
    return jnp.clip(jnp.asarray(progress, jnp.float32), 0.0, 1.0)
