"""Environments of Brax (github.com/google/brax; Freeman et al. 2021, arXiv:2106.13281), as `brax/NAME`."""

from __future__ import annotations

import difflib

from hmx.config.textfile import quoted
from hmx.env.physics import imported, make_physics, quiet
from hmx.env.protocol import Env
from hmx.errors import HmxError

PREFIX = "brax/"
"""What an id here starts with; the rest is `NAME`, or `NAME@BACKEND`, of Brax's own registry."""

BACKENDS = ("generalized", "mjx", "positional", "spring")
"""Brax's own names of its physics."""


def make_brax(env_id: str, max_steps: int) -> Env:
    """The environment `brax/NAME` on the physics that is its default in Brax, or on that of `brax/NAME@BACKEND`.

    Only `brax.envs` is imported. The trainers in the wheel of Brax 0.14.2 call `jax.device_put_replicated`, which
    JAX 0.10 no longer has; its environments do not.

    Args:
        env_id: such as `brax/inverted_pendulum`.
        max_steps: see `make_physics`.

    Raises:
        HmxError: Brax is missing, or it has no such environment or backend.
    """
    name, at, backend = env_id.removeprefix(PREFIX).partition("@")
    if at and backend not in BACKENDS:
        raise HmxError(f"Brax has no backend {quoted(backend)}", f"known: {', '.join(BACKENDS)}")
    envs = imported("brax", "brax.envs")
    known = list(envs._envs)  # the only list of them there is
    if name not in known:
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
        hint = f"near: {', '.join(PREFIX + other for other in near)}" if near else f"known: {', '.join(known)}"
        raise HmxError(f"Brax has no environment {quoted(name)}", hint)
    try:
        with quiet():
            theirs = envs.get_environment(name, **({"backend": backend} if at else {}))
    except ValueError as error:  # swimmer runs on one of the four
        raise HmxError(f"{PREFIX}{name} cannot be built: {quoted(str(error))}", f"env.id={PREFIX}{name}") from error
    return make_physics(env_id, theirs, max_steps)
