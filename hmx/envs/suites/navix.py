"""Environments of navix (github.com/epignatelli/navix)."""

from __future__ import annotations

from typing import Any

from hmx.envs.protocol import Env
from hmx.envs.single import Single, named
from hmx.envs.suites.functional import built, one_hot
from hmx.envs.suites.importing import importing
from hmx.types import Array, Key

CELL = (11, 6, 4)
"""Kinds of entities, colours, and states of a door or directions of the player."""


def make_navix(env_id: str, max_steps: int) -> Env:
    """Build `navix/NAME` of navix (Pignatelli et al. 2024, arXiv:2407.19396) as `navix.make` does."""
    with importing("navix"):
        import navix
    theirs = navix.make(named(env_id, list(navix.registry())))
    actions = tuple(action.__name__ for action in theirs.action_set)

    def reset(key: Key) -> Any:
        timestep = theirs.reset(key)
        return timestep, one_hot(timestep.observation, CELL)

    def step(timestep: Any, action: Array, key: Key) -> Any:
        # _step, not step: the latter resets too; random numbers come from the key in the state, which the reset set
        after = theirs._step(timestep, action)
        return after, one_hot(after.observation, CELL), after.reward, after.is_termination()

    return built(env_id, Single(reset, step, actions, limit=theirs.max_steps), max_steps)
