"""Adapt one environment of a user or another library, given as plain functions, to the contract of `hmx.envs`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from hmx.config.textfile import quoted
from hmx.envs.autoreset import Game, batched
from hmx.envs.checks.problems import changed_type
from hmx.envs.protocol import Env, EnvSpec, Quantity, numbers_of, settled
from hmx.errors import HmxError, counted, nearest
from hmx.registry.observations import CRITIC, is_image, ordered, policy_only, value_only
from hmx.simulators.answers import Broken, truths
from hmx.types import Array, Key

Theirs = Any  # a state, an observation or a result of code that is not ours
_GAMES, _STEPS = 8, 16  # of the play that looks for strange truth values
TERMINATED, LEGAL = "terminated, which step returns,", "what legal returns"


class Single(NamedTuple):
    """One environment with one agent: functions that neither batch nor reset nor count steps.

    An observation is an array, or a dict of named ones (`hmx.registry.observations`). Arrays become float32 vectors;
    a single one with three axes is an image `[H, W, C]`, and also may be uint8 or bool.

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
    step_seconds: float = 0.0  # see `EnvSpec`
    action_quantities: tuple[Quantity, ...] = ()  # see `EnvSpec`


class Kept(NamedTuple):
    """One environment: its state, and its last results."""

    state: Theirs
    obs: Array | dict[str, Array]  # float32 [F], an image [H, W, C], or named parts, each float32 [F]


def from_single(env_id: str, single: Single, max_steps: int) -> Env:
    """Build the environment that plays `single` in a batch, see `hmx.envs.autoreset`.

    Its own step limit applies if it is shorter than `max_steps`.

    Raises:
        ValueError: its functions return values that differ from `Single`, or change shapes or types.
    """
    given = single.actions
    names = given if isinstance(given, tuple) else tuple(f"action_{i}" for i in range(given))
    game = _game(single, len(names))
    key = jax.eval_shape(jax.random.key, 0)
    first = jax.eval_shape(game.start, key)
    seen, parts = jax.eval_shape(game.observe, first), _sizes(first.obs)
    terms = single.terms
    if not terms:
        kind = ((single.action_dim,), jnp.float32) if single.action_dim else ((), jnp.int32)
        after, paid, _ = jax.eval_shape(game.move, first, jax.ShapeDtypeStruct(*kind), key)
        if changed := changed_type(first.state, after.state) or changed_type(first.obs, after.obs, "the observation"):
            raise ValueError(changed)
        terms = tuple(paid)
    render, describe = single.render, single.describe
    spec = EnvSpec(
        id=env_id,
        obs_shape=seen.shape,
        obs_dtype=seen.dtype,
        num_actions=len(names),
        max_steps=min(max_steps or single.limit, single.limit) if single.limit else max_steps,
        reward_terms=terms,
        action_groups=(("action", 0, len(names)),) if isinstance(given, int) and given else (),
        action_names=names,
        action_dim=single.action_dim,
        describe=None if describe is None else lambda state: dict(describe(_host(state))),
        render=None if render is None else lambda state: str(render(_host(state))),
        costly_reset=single.costly_reset,
        step_seconds=single.step_seconds,
        action_quantities=single.action_quantities,
        value_only=value_only(parts),
        policy_only=policy_only(parts),
        obs_quantities=numbers_of(parts),
    )
    return batched(spec, game)


def named(env_id: str, known: Sequence[str], library: str = "") -> str:
    """Return the part of an id `extra/NAME` that names an environment of a library, called as the extra by default.

    Raises:
        HmxError: the library has no such name; the hint is the nearest id, or all names.
    """
    name = env_id.partition("/")[2]
    if name not in known:
        raise unknown(env_id, known, library)
    return name


def unknown(env_id: str, known: Sequence[str], library: str = "") -> HmxError:
    """Return the error of an id `extra/NAME` that a library does not have; the hint is the nearest id, or all names."""
    extra, _, name = env_id.partition("/")
    near = nearest(name, known)
    hint = f"did you mean {extra}/{near}?" if near else f"known: {', '.join(known)}"
    return HmxError(f"{library or extra} has no environment {quoted(name)}", hint)


def joined(obs: Theirs) -> Array:
    """Return all arrays of an observation without names as one float32 vector `[F]`."""
    return jnp.concatenate([jnp.asarray(leaf, jnp.float32).reshape(-1) for leaf in jax.tree.leaves(obs)])


def _game(single: Single, num_actions: int) -> Game:
    def start(key: Key) -> Kept:
        return _kept(*_parts("reset", single.reset(key), ("state", "obs")))

    def move(core: Kept, action: Array, key: Key) -> tuple[Kept, dict[str, Array], Array]:
        given = single.step(core.state, action, key)
        state, obs, reward, terminated = _parts("step", given, ("state", "obs", "reward", "terminated"))
        terms = reward if isinstance(reward, dict) else {"reward": reward}
        scalars = {name: _real(value, f"step returns {name}").astype(jnp.float32) for name, value in terms.items()}
        for name, value in {**scalars, "terminated": jnp.asarray(terminated)}.items():
            if value.shape != ():
                raise ValueError(f"step returns {name} of shape {value.shape}; expected one number")
        return _kept(state, obs), scalars, _truths(jnp.asarray(terminated), TERMINATED)

    def mask(core: Kept) -> Array:
        if single.legal is None:
            return jnp.ones(num_actions, bool)
        allowed = _truths(jnp.asarray(single.legal(core.state)), LEGAL)
        if allowed.shape != (num_actions,):
            raise ValueError(f"legal returns shape {allowed.shape}; expected ({num_actions},), one per action")
        return allowed

    return Game(start, move, _observe, mask)


def _truths(given: Array, what: str) -> Array:
    """Return truth values as bools. Of numbers, only 1 is true: `strange_truths` refuses others than 0 and 1."""
    if given.dtype == jnp.bool_:
        return given
    _real(given, what)
    return given == 1


def _real(given: Theirs, what: str) -> Array:
    array = jnp.asarray(given)
    if not any(jnp.issubdtype(array.dtype, kind) for kind in (jnp.bool_, jnp.integer, jnp.floating)):
        raise ValueError(f"{what} {array.dtype}; expected real numbers")
    return array


def strange_truths(single: Single, num_actions: int) -> str:
    """Return the first truth value that is neither a bool nor 0 or 1, in the first steps of some games; empty if none.

    Types say enough where all are bools, so nothing is computed then.
    """

    def seen(state: Theirs, ended: Theirs) -> dict[str, Array]:
        found = {TERMINATED: jnp.asarray(ended)}
        if single.legal is not None:
            found[LEGAL] = jnp.asarray(single.legal(state))
        return {name: value for name, value in found.items() if value.dtype != jnp.bool_}

    def play(key: Key) -> dict[str, Array]:
        k_reset, k_steps = jax.random.split(key)

        def step(state: Theirs, t: Array) -> tuple[Theirs, dict[str, Array]]:
            k_action, k_step = jax.random.split(jax.random.fold_in(k_steps, t))
            allowed = jnp.ones(num_actions, bool) if single.legal is None else jnp.asarray(single.legal(state)) == 1
            if single.action_dim:
                action = jax.random.uniform(k_action, (single.action_dim,), minval=-1.0)
            else:
                action = jax.random.categorical(k_action, jnp.where(allowed | ~allowed.any(), 0.0, -jnp.inf))
            after, _, _, ended = single.step(state, action, k_step)
            return settled(after), seen(after, ended)

        first = settled(single.reset(k_reset)[0])
        _, later = jax.lax.scan(step, first, jnp.arange(_STEPS))
        start = seen(first, False)
        return {
            name: jnp.concatenate([start[name][None], row]) if name in start else row for name, row in later.items()
        }

    if not jax.eval_shape(play, jax.eval_shape(jax.random.key, 0)):
        return ""
    keys = jax.random.split(jax.random.key(0), _GAMES)
    for name, values in jax.device_get(jax.jit(jax.vmap(play))(keys)).items():
        try:
            truths(values, name)
        except Broken as problem:
            return str(problem)
    return ""


def _host(state: Theirs) -> Theirs:
    """Return the state of a batch of one, on the host."""
    return jax.device_get(jax.tree.map(lambda leaf: leaf[0], state.core.state))


def _kept(state: Theirs, obs: Theirs) -> Kept:
    if isinstance(obs, dict):
        if obs.keys() <= {CRITIC}:
            raise ValueError(f"an observation has the parts {sorted(obs)}; the policy reads none of them")
        return Kept(
            settled(state),
            {
                name: _real(part, f"the part {name} of an observation is").astype(jnp.float32).reshape(-1)
                for name, part in obs.items()
            },
        )
    leaves = jax.tree.leaves(obs)
    if len(leaves) != 1:
        raise ValueError(f"an observation has {len(leaves)} arrays; return one, or a dict of named arrays")
    array = _real(leaves[0], "an observation is")
    if not is_image(array.shape):
        return Kept(settled(state), array.astype(jnp.float32).reshape(-1))
    return Kept(settled(state), array if array.dtype in (jnp.uint8, jnp.bool_) else array.astype(jnp.float32))


def _observe(core: Kept) -> Array:
    """Return the array that networks read; named parts are joined."""
    obs = core.obs
    return jnp.concatenate([obs[name] for name in ordered(obs)]) if isinstance(obs, dict) else obs


def _sizes(obs: Theirs) -> dict[str, int]:
    """Return the sizes of the named parts of an observation, in order; empty for a single array."""
    return {name: math.prod(obs[name].shape) for name in ordered(obs)} if isinstance(obs, dict) else {}


def _parts(function: str, given: Theirs, names: tuple[str, ...]) -> tuple[Any, ...]:
    if not isinstance(given, tuple) or len(given) != len(names):
        found = counted(len(given), "value") if isinstance(given, tuple) else f"a {type(given).__name__}"
        more = "; hmx truncates episodes itself, after MAX_STEPS" if found == "5 values" else ""
        raise ValueError(f"{function} returns {found}; expected ({', '.join(names)}){more}")
    return given
