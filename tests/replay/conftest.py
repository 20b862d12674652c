"""A small buffer of numbered transitions, compiled once for all tests."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import pytest

from hmx.config.learning import ReplayConfig
from hmx.replay import Replay

CAPACITY, ENVS = 24, 3


class Compiled(NamedTuple):
    """The functions of a replay that change or read its state, compiled."""

    replay: Replay
    options: ReplayConfig
    empty: Any
    add: Any
    sample: Any
    set_priority: Any
    set_scores: Any
    retune: Any
    probs: Any

    def filled(self, rounds: int, state: Any = None) -> Any:
        """A buffer after that many more batches."""
        state = self.empty if state is None else state
        for _ in range(rounds):
            state = self.add(state, *numbered(state.num_added))
        return state


def numbered(first):
    """Items that say which transition they are, and environment states with the batch on the trailing axis."""
    number = first.astype(jnp.int32) + jnp.arange(ENVS, dtype=jnp.int32)
    return {"number": number, "wide": jnp.stack([number, -number], 1)}, (number, jnp.stack([number, 10 * number]))


@cache
def function(name: str, options: ReplayConfig, static: int | None = None) -> Any:
    """One compilation per function and set of options that it looks at."""
    compiled = getattr(Replay(CAPACITY, ENVS, options, -1), name)
    return jax.jit(compiled, static_argnums=static)


@cache
def compile_replay(options: ReplayConfig) -> Compiled:
    """The replay with these options; functions that are the same for other options are compiled once for all."""
    replay = Replay(CAPACITY, ENVS, options, -1)
    unfitted = replace(options, mu=0.5, alpha_td=1.0, alpha_c=1.0, is_norm="max", target_ess=0.0, replacement=True)
    scoring = replace(options, is_norm="max") if options.target_ess else unfitted
    drawing = replace(unfitted, mu=options.mu, is_norm=options.is_norm, replacement=options.replacement)
    return Compiled(
        replay,
        options,
        replay.init(*numbered(jnp.uint32(0))),
        function("add", unfitted),
        function("sample", drawing, 2),
        function("set_priority", unfitted),
        function("set_scores", scoring),
        function("retune", scoring),
        function("probs", replace(drawing, is_norm="max")),
    )


@pytest.fixture(scope="session")
def make():
    """`make(mixing=..., ...)`: a compiled replay, its environment states batched on the trailing axis."""
    return lambda **options: compile_replay(ReplayConfig(**{"mixing": "additive", **options}))
