"""Environments of Brax (github.com/google/brax)."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from hmx.config.textfile import quoted
from hmx.envs.protocol import Env
from hmx.envs.single import named
from hmx.envs.suites.importing import importing, quiet
from hmx.envs.suites.physics import make_physics
from hmx.errors import HmxError
from hmx.types import Array

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
    """Build `brax/NAME` on the default physics of Brax (Freeman et al. 2021, arXiv:2106.13281), or `brax/NAME@BACKEND`.

    Two parts of the wheel of Brax 0.14.2 are older than JAX 0.10. The drag of fluids, only in swimmer, uses old names
    for the bounds of `clip`; see `OldNumpy`. The trainers call `jax.device_put_replicated`, which no longer exists; hmx
    imports only the environments, which do not call it.

    Raises:
        HmxError: Brax is missing, or it has no such environment or backend.
    """
    wanted, at, backend = env_id.partition("@")
    if at and backend not in BACKENDS:
        raise HmxError(f"Brax has no backend {quoted(backend)}", f"known: {', '.join(BACKENDS)}")
    with importing("brax"):
        from brax import envs, fluid
    fluid.jp = OldNumpy()
    name = named(wanted, list(envs._envs), "Brax")  # the only list of them
    try:
        with quiet():
            theirs = envs.get_environment(name, **({"backend": backend} if at else {}))
    except ValueError as error:  # swimmer runs on one of the four
        raise HmxError(f"{wanted} cannot be built: {quoted(str(error))}", f"env.id={wanted}") from error
    return make_physics(env_id, theirs, max_steps)
