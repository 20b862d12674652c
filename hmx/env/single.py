"""From one environment of a user or another library, as plain functions, to the contract of `hmx.env`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from hmx.env.autoreset import Game, batched
from hmx.env.extras import settled
from hmx.env.protocol import Env, EnvSpec
from hmx.errors import counted
from hmx.types import Array, Key

Theirs = Any  # a state, an observation or a result of code that is not ours


class Single(NamedTuple):
    """One environment with one agent: functions that neither batch nor reset nor count steps.

    `reset(key) -> (state, obs)` and `step(state, action, key) -> (state, obs, reward, terminated)`, where `reward` is a
    number or a dict of named terms, and `terminated` leaves out the step limit. `legal`, `render` and `describe` read a
    state.
    """

    reset: Callable[[Key], Theirs]
    step: Callable[[Theirs, Array, Key], Theirs]
    actions: tuple[str, ...] | int = ()  # names of discrete actions, or their number
    action_dim: int = 0  # numbers in [-1, 1] of a continuous action
    limit: int = 0  # its own step limit, which a configuration can only lower; 0 for none
    legal: Callable[[Theirs], Theirs] | None = None
    render: Callable[[Theirs], Theirs] | None = None
    describe: Callable[[Theirs], Theirs] | None = None
    terms: tuple[str, ...] = ("reward",)  # of the reward; empty to find them, and check the types, by tracing a step
    costly_reset: bool = False  # see `EnvSpec`


class Kept(NamedTuple):
    """One environment: the state it keeps, and what it showed last."""

    state: Theirs
    obs: Array  # float32 [F]


def from_single(env_id: str, single: Single, max_steps: int) -> Env:
    """Build the environment that plays `single` in a batch, see `hmx.env.autoreset`.

    Args:
        env_id: id of the result.
        single: what to play.
        max_steps: steps after which an episode is truncated; its own limit holds where that is shorter.

    Raises:
        ValueError: its functions return something else than `Single` says, or change shapes or types.
    """
    if isinstance(single.actions, int):
        names = tuple(f"action_{i}" for i in range(single.actions))
        groups: tuple[tuple[str, int, int], ...] = (("action", 0, len(names)),) if names else ()
    else:
        names = single.actions
        groups = tuple((name, i, i + 1) for i, name in enumerate(names))
    game = _game(single, len(names))
    key = jax.eval_shape(jax.random.key, 0)
    first = jax.eval_shape(game.start, key)
    terms = single.terms
    if not terms:
        kind = ((single.action_dim,), jnp.float32) if single.action_dim else ((), jnp.int32)
        after, paid, _ = jax.eval_shape(game.move, first, jax.ShapeDtypeStruct(*kind), key)
        _check_same(first, after)
        terms = tuple(paid)
    render, describe = single.render, single.describe
    spec = EnvSpec(
        id=env_id,
        obs_shape=first.obs.shape,
        obs_dtype=first.obs.dtype,
        num_actions=len(names),
        num_agents=1,
        max_steps=min(max_steps or single.limit, single.limit) if single.limit else max_steps,
        reward_terms=terms,
        action_groups=groups,
        action_names=names,
        action_dim=single.action_dim,
        describe=None if describe is None else lambda state: dict(describe(_host(state))),
        render=None if render is None else lambda state: str(render(_host(state))),
        costly_reset=single.costly_reset,
    )
    return batched(spec, game)


def joined(obs: Theirs) -> Array:
    """Return all arrays of an observation as one float32 vector `[F]`."""
    return jnp.concatenate([jnp.asarray(leaf, jnp.float32).reshape(-1) for leaf in jax.tree.leaves(obs)])


def form(leaf: Theirs) -> str:
    """Return dtype and shape of an array as text, such as `float32[2,3]`."""
    return f"{leaf.dtype}[{','.join(str(n) for n in leaf.shape)}]"


def _game(single: Single, num_actions: int) -> Game:
    def start(key: Key) -> Kept:
        return _kept(*_parts("reset", single.reset(key), ("state", "obs")))

    def move(core: Kept, action: Array, key: Key) -> tuple[Kept, dict[str, Array], Array]:
        given = single.step(core.state, action, key)
        state, obs, reward, terminated = _parts("step", given, ("state", "obs", "reward", "terminated"))
        terms = reward if isinstance(reward, dict) else {"reward": reward}
        scalars = {name: jnp.asarray(value, jnp.float32) for name, value in terms.items()}
        for name, value in {**scalars, "terminated": jnp.asarray(terminated)}.items():
            if value.shape != ():
                raise ValueError(f"step returns {name} of shape {value.shape}; expected one number")
        return _kept(state, obs), scalars, jnp.asarray(terminated, bool)

    def mask(core: Kept) -> Array:
        if single.legal is None:
            return jnp.ones(num_actions, bool)
        allowed = jnp.asarray(single.legal(core.state), bool)
        if allowed.shape != (num_actions,):
            raise ValueError(f"legal returns shape {allowed.shape}; expected ({num_actions},), one per action")
        return allowed

    return Game(start, move, lambda core: core.obs, mask)


def _host(state: Theirs) -> Theirs:
    """Return the state of a batch of one, on the host."""
    return jax.device_get(jax.tree.map(lambda leaf: leaf[0], state.core.state))


def _kept(state: Theirs, obs: Theirs) -> Kept:
    leaves = jax.tree.leaves(obs)
    if len(leaves) != 1:
        raise ValueError(f"an observation has {len(leaves)} arrays; networks take one, so concatenate them")
    return Kept(settled(state), jnp.asarray(leaves[0], jnp.float32).reshape(-1))


def _parts(function: str, given: Theirs, names: tuple[str, ...]) -> tuple[Any, ...]:
    if not isinstance(given, tuple) or len(given) != len(names):
        found = counted(len(given), "value") if isinstance(given, tuple) else f"a {type(given).__name__}"
        more = "; hmx truncates episodes itself, after MAX_STEPS" if found == "5 values" else ""
        raise ValueError(f"{function} returns {found}; expected ({', '.join(names)}){more}")
    return given


def _check_same(first: Kept, after: Kept) -> None:
    """Check that a step keeps shapes and types, each difference named."""
    if str(jax.tree.structure(first.state)) != str(jax.tree.structure(after.state)):
        shown = [str(jax.tree.structure(core.state))[:200] for core in (first, after)]
        raise ValueError(f"step returns another kind of state than reset: {shown[1]} instead of {shown[0]}")
    pairs = zip(jax.tree.leaves_with_path(first), jax.tree.leaves(after), strict=True)
    unlike = [
        f"{jax.tree_util.keystr(path).lstrip('.')} is {form(a)} after reset and {form(b)} after step"
        for (path, a), b in pairs
        if (a.shape, a.dtype) != (b.shape, b.dtype)
    ]
    if unlike:
        raise ValueError(f"shapes and types must stay the same, but {'; '.join(unlike[:4])}")
