"""Environments of Brax (github.com/google/brax; Freeman et al. 2021, arXiv:2106.13281), as `brax/NAME`."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from hmx.config.textfile import quoted
from hmx.env.extras import near_or_known
from hmx.env.physics import importing, make_physics, quiet
from hmx.env.protocol import Env
from hmx.errors import HmxError
from hmx.types import Array

PREFIX = "brax/"
"""What an id here starts with; the rest is `NAME`, or `NAME@BACKEND`, of Brax's own registry."""

BACKENDS = ("generalized", "mjx", "positional", "spring")
"""Brax's own names of its physics."""


class OldNumpy:
    """`jax.numpy` for one module of Brax, whose `clip` takes its bounds by their former names too."""

    def __getattr__(self, name: str) -> Any:
        return getattr(jnp, name)

    @staticmethod
    def clip(array: Array, a_min: Any = None, a_max: Any = None) -> Array:
        """Call `jax.numpy.clip`."""
        return jnp.clip(array, a_min, a_max)


def make_brax(env_id: str, max_steps: int) -> Env:
    """Build `brax/NAME` on the default physics of Brax, or `brax/NAME@BACKEND` on another one.

    Two things in the wheel of Brax 0.14.2 are older than JAX 0.10. The drag of fluids, in swimmer alone, names the
    bounds of `clip` as it no longer does; see `OldNumpy`. The trainers call `jax.device_put_replicated`, which is
    gone; the environments do not, and nothing else of Brax is imported.

    Args:
        env_id: such as `brax/inverted_pendulum`.
        max_steps: see `make_physics`.

    Raises:
        HmxError: Brax is missing, or it has no such environment or backend.
    """
    name, at, backend = env_id.removeprefix(PREFIX).partition("@")
    if at and backend not in BACKENDS:
        raise HmxError(f"Brax has no backend {quoted(backend)}", f"known: {', '.join(BACKENDS)}")
    with importing("brax"):
        from brax import envs, fluid
    fluid.jp = OldNumpy()
    known = list(envs._envs)  # the only list of them there is
    if name not in known:
        raise HmxError(f"Brax has no environment {quoted(name)}", near_or_known(name, known, PREFIX))
    try:
        with quiet():
            theirs = envs.get_environment(name, **({"backend": backend} if at else {}))
    except ValueError as error:  # swimmer runs on one of the four
        raise HmxError(f"{PREFIX}{name} cannot be built: {quoted(str(error))}", f"env.id={PREFIX}{name}") from error
    return make_physics(env_id, theirs, max_steps)
