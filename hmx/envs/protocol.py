"""Interface of environments: pure functions over a batch of `E` environments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool

from hmx.errors import HmxError
from hmx.simulators.recipe import Recipe
from hmx.simulators.spaces import Facts
from hmx.types import Array, Key, Timestep

EnvState = Any
Tree = TypeVar("Tree")


class Quantity(NamedTuple):
    """One number of an observation or of a continuous action, in the units of the environment."""

    name: str
    unit: str = ""  # such as `m/s`; empty if it has none, or none is known
    low: float | None = None  # None for no limit; numbers of actions have both limits
    high: float | None = None


def numbers_of(parts: Mapping[str, int]) -> tuple[Quantity, ...]:
    """Return the numbers of joined parts, given their sizes, as `policy[0]`, `policy[1]` and so on."""
    return tuple(Quantity(f"{name}[{i}]") for name, size in parts.items() for i in range(size))


class SimulatorSource(NamedTuple):
    """How worker processes make a simulator, its form, and how to get an environment of copies."""

    recipe: Recipe
    facts: Facts
    copies: Callable[[], Env]


class EnvSpec(NamedTuple):
    """The static facts of an environment that a network and a learner need; the defaults are those of one agent."""

    id: str
    obs_shape: tuple[int, ...]
    obs_dtype: Any = jnp.float32
    num_actions: int = 0  # 0 if actions are continuous
    num_agents: int = 1
    max_steps: int = 0  # 0: no limit
    reward_terms: tuple[str, ...] = ("reward",)
    action_groups: tuple[tuple[str, int, int], ...] = ()  # (name, first action, one past the last)
    action_names: tuple[str, ...] = ()
    state_axis: int = 0  # the axis of E in every leaf of the state: 0 or -1
    decode: Callable[[Array], Array] | None = None  # packed observation -> float32 features [..., F]
    cells: Callable[[Array], tuple[Array, Array]] | None = None  # -> scalars [..., S] and board cells [..., C, F]
    action_dim: int = 0  # numbers of a continuous action; 0 if actions are discrete
    value_only: int = 0  # features at the end of an observation, only for the value in training
    policy_only: int = 0  # features at its start that the value does not read, if there are some that only it reads
    describe: Callable[[EnvState], dict[str, Any]] | None = None  # a batch of one state, on the host -> plain data
    render: Callable[[EnvState], str] | None = None  # a batch of one state, on the host -> lines for a terminal
    later_reset: Callable[[Key], tuple[EnvState, Timestep]] | None = None  # a `reset` into later stages, for training
    simulator: SimulatorSource | None = None  # of what workers step; `reset` gives shapes only, and `step` refuses
    copied: bool = False  # whether it steps copies of a simulator, by callbacks
    action_parts: tuple[int, ...] = ()  # choices of each part of an action that has several; they sum to num_actions
    redrawn: Callable[..., EnvState] | None = None  # see `hmx.envs.belief`
    symmetries: tuple[tuple[int, ...], ...] = ()  # symmetry of an observation -> original of each action
    turned: Callable[[Array, Array], Array] | None = (
        None  # (observations, symmetries [...]) -> transformed observations
    )
    costly_reset: bool = False  # a reset takes longer than a step, so the batch resets only when an episode ends
    step_seconds: float = 0.0  # simulated time of a step; 0 if the environment states none
    obs_quantities: tuple[Quantity, ...] = ()  # the numbers of an observation in order; empty if not described
    action_quantities: tuple[Quantity, ...] = ()  # those of a continuous action; -1 and 1 stand for the limits


class Stepper(NamedTuple):
    """How functions that step an environment run: in compiled programs, or on the host between compiled parts."""

    program: Callable[..., Callable[..., Any]]  # of a function that steps; `donate_argnums` as in `jax.jit`
    part: Callable[..., Any]  # of a function between two steps
    while_loop: Callable[..., Any]
    split: Callable[[Key], Any]  # a key into two: the second one is for the environments
    spread: Callable[[Key, int], Key]  # into a key per environment
    numbered: bool  # whether each environment has episodes of its own, by number


COMPILED = Stepper(jax.jit, lambda function: function, jax.lax.while_loop, jax.random.split, jax.random.split, False)


def _on_host(going: Callable[[Tree], object], body: Callable[[Tree], Tree], value: Tree) -> Tree:
    while going(value):
        value = body(value)
    return value


# Workers read no keys: the episodes of a simulator follow from their seeds.
ON_HOST = Stepper(
    lambda function, **options: function, jax.jit, _on_host, lambda key: (key, key), lambda key, number: key, True
)


class Env(NamedTuple):
    """An environment, natively batched.

    `reset(keys)` and `step(state, action, keys)` take one typed key per environment, `[E]`, so that a batch of N equals
    N single environments bit for bit. `step` resets finished environments itself.

    Actions are `[E, A]` int32, or `[E, A, action_dim]` float32 in [-1, 1], which the environment scales to its own
    limits; numbers beyond count as the nearest limit. Legal actions are then `[E, A, 0]`.

    `play` and `renew`, if there are any, are the two halves of `step`, with the same keys. `play(state, action, keys)`
    starts no new episode: it returns the last state and observation where one ends. A search plays on from them, so the
    legal actions after an end by the rules have no meaning. `renew(state, timestep, keys)` starts the new episodes.

    `root(state)` is the state that a search may start from, where that is not the state itself.

    `stepper` says how functions that step it run; an environment in JAX keeps the default.
    """

    spec: EnvSpec
    reset: Callable[[Key], tuple[EnvState, Timestep]]
    step: Callable[[EnvState, Array, Key], tuple[EnvState, Timestep]]
    play: Callable[[EnvState, Array, Key], tuple[EnvState, Timestep]] | None = None
    renew: Callable[[EnvState, Timestep, Key], tuple[EnvState, Timestep]] | None = None
    stepper: Stepper = COMPILED
    root: Callable[[EnvState], EnvState] = lambda state: state


def play(env: Env, state: EnvState, action: Array, keys: Key) -> tuple[EnvState, Timestep]:
    """Step as `env.play` does, or else with `env.step`, whose last observations then are the only ones."""
    if env.play is not None:
        return env.play(state, action, keys)
    state, seen = env.step(state, action, keys)
    return state, seen._replace(obs=seen.final_obs, legal=seen.final_legal)


def play_and_renew(env: Env, state: EnvState, action: Array, keys: Key) -> tuple[EnvState, EnvState, Timestep]:
    """Step with both halves; return also the last state of an episode that ends, if the environment has halves."""
    if env.play is None or env.renew is None:
        after, timestep = env.step(state, action, keys)
        return after, state, timestep
    last, timestep = env.play(state, action, keys)
    after, timestep = env.renew(last, timestep, jax.random.clone(keys))  # the same keys twice, on purpose
    return after, last, timestep


def both_halves(
    play: Callable[[EnvState, Array, Key], tuple[EnvState, Timestep]],
    renew: Callable[[EnvState, Timestep, Key], tuple[EnvState, Timestep]],
) -> Callable[[EnvState, Array, Key], tuple[EnvState, Timestep]]:
    """Return the step that an environment's `play` and `renew` are the halves of."""

    def step(state: EnvState, action: Array, keys: Key) -> tuple[EnvState, Timestep]:
        last, timestep = play(state, action, keys)
        return renew(last, timestep, jax.random.clone(keys))  # the same keys twice, on purpose

    return step


def folded(keys: Key, number: int | Array) -> Key:
    """Return each of the keys `[E]` with a number folded in."""
    return jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys, number)


def select(where: Bool[Array, " E"], then: Tree, other: Tree, axis: int = 0) -> Tree:
    """Select per environment the leaves of one pytree or the other; `where [E]` lies along `axis` of every leaf."""

    def pick(a: Array, b: Array) -> Array:
        shape = [1] * a.ndim
        shape[axis] = -1
        return jnp.where(where.reshape(shape), a, b)

    chosen: Tree = jax.tree.map(pick, then, other)
    return chosen


def playable(env: Env, what: str) -> Env:
    """Return an environment that compiled programs can step: of a simulator, one of its copies.

    Raises:
        HmxError: the simulator has no `get_state` and `set_state`, which `what` needs.
    """
    source = env.spec.simulator
    if source is None:
        return env
    if not source.facts.has_state:
        message = f"cannot play copies of {env.spec.id}, which {what} needs: it has no get_state and set_state"
        raise HmxError(message, "define both (docs/simulators.md), or use an environment in JAX")
    return source.copies()


def settled(state: Tree) -> Tree:
    """Return a state with the dtypes that steps return: some libraries start fields as Python numbers."""
    fixed: Tree = jax.tree.map(lambda leaf: jnp.asarray(leaf).astype(jnp.asarray(leaf).dtype), state)
    return fixed


def take(spec: EnvSpec, state: EnvState, index: Array | np.ndarray) -> EnvState:
    """Return the states of the environments in `index`, along the batch axis."""
    return jax.tree.map(lambda leaf: leaf.take(index, axis=spec.state_axis), state)
