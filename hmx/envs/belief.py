"""Environments in which a search starts from what the player has seen, not from the true state.

An environment with hidden parts offers `spec.redrawn(state, keys, expected, known)`: states that look the same to the
player, whose hidden parts are drawn at random, or agree with the states `expected [E]` where `known [E]` holds. Without
`expected` everything hidden is drawn at random.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from hmx.envs.protocol import Env, EnvState, folded, play
from hmx.types import Array, Key, Timestep

T = TypeVar("T")
_EXPECT, _DRAW = 0x5EE, 0x5EF


class Believed(NamedTuple):
    """True states of `E` environments, and states that the player could be in for all that it has seen."""

    true: EnvState
    imagined: EnvState


def imagine(env: Env, before: EnvState, action: Array, state: EnvState, known: Array, keys: Key) -> EnvState:
    """Return the state that the player imagines in the true `state`, after an action in the imagined state `before`.

    Where `known [E]` is false the episode has just begun, and `before` and `action` do not matter.
    """
    assert env.spec.redrawn is not None
    expected, _ = play(env, before, action, folded(keys, _EXPECT))
    return env.spec.redrawn(state, folded(keys, _DRAW), expected, known)


def _step_both(env: Env, state: Believed, action: Array, keys: Key) -> tuple[EnvState, Timestep, EnvState]:
    """Step the true states; return also what the imagined states lead to.

    Both are played as one batch where that is possible, so that the program contains the game once.
    """
    if env.play is None or env.renew is None:
        after, seen = env.step(state.true, action, keys)
        expected, _ = play(env, state.imagined, action, folded(keys, _EXPECT))
        return after, seen, expected
    axis = env.spec.state_axis
    both = jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis), state.true, state.imagined)
    last, seen = env.play(both, jnp.tile(action, (2, 1)), jnp.concatenate([keys, folded(keys, _EXPECT)]))
    true = jax.tree.map(lambda leaf: jnp.split(leaf, 2, axis)[0], last)
    expected = jax.tree.map(lambda leaf: jnp.split(leaf, 2, axis)[1], last)
    seen = jax.tree.map(lambda leaf: leaf[: len(keys)], seen)
    after, seen = env.renew(true, seen, jax.random.clone(keys))
    return after, seen, expected


def as_seen(env: Env) -> Env:
    """Return the environment with a state imagined beside the true one: `root` of its states is the imagined one.

    After each step the player expects what the imagined state leads to, with random numbers of its own, and imagines a
    state that agrees with this and with what it sees. The true states are those of `env`, bit for bit. An environment
    that offers no `redrawn` hides nothing, and is returned as it is.
    """
    redrawn, spec = env.spec.redrawn, env.spec
    if redrawn is None:
        return env

    def started(first: tuple[EnvState, Timestep], keys: Key) -> tuple[Believed, Timestep]:
        state, seen = first
        return Believed(state, redrawn(state, folded(keys, _DRAW), state, jnp.zeros(keys.shape, bool))), seen

    def step(state: Believed, action: Array, keys: Key) -> tuple[Believed, Timestep]:
        after, seen, expected = _step_both(env, state, action, keys)
        known = ~(seen.terminated | seen.truncated)
        return Believed(after, redrawn(after, folded(keys, _DRAW), expected, known)), seen

    later = spec.later_reset
    spec = spec._replace(
        later_reset=None if later is None else lambda keys: started(later(keys), keys),
        describe=_of_true(spec.describe),
        render=_of_true(spec.render),
    )
    return env._replace(
        spec=spec,
        reset=lambda keys: started(env.reset(keys), keys),
        step=step,
        play=lambda state, action, keys: play(env, state, action, keys),
        renew=None,
        root=lambda state: state.imagined,
    )


def _of_true(show: Callable[[EnvState], T] | None) -> Callable[[Believed], T] | None:
    return None if show is None else lambda state: show(state.true)
