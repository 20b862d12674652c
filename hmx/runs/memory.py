"""Running out of memory, told in words."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import jax

from hmx.errors import ExitCode, HmxError


@contextlib.contextmanager
def out_of_memory(doing: str) -> Iterator[None]:
    """Turns a failed allocation, on the host or on the device, into an HmxError.

    Args:
        doing: what the memory was not enough for, as `compiling`.
    """
    try:
        yield
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        text = " ".join(str(error).split())
        if not isinstance(error, MemoryError) and "RESOURCE_EXHAUSTED" not in text:
            raise
        message = f"not enough memory while {doing}" + (f": {text[:200]}" if text else "")
        hint = (
            "fewer of env.num_envs, run.num_seeds or algo.num_steps need less; another program may hold the rest. "
            "A checkpoint that is there stays good: `hmx resume` goes on from it"
        )
        raise HmxError(message, hint, ExitCode.USAGE) from error
