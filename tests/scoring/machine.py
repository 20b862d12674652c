"""A slot machine whose levers have known consequences, one row of them per case, compiled once for all tests."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hmx.envs.autoreset import Game, batched
from hmx.envs.protocol import Env, EnvSpec
from hmx.scoring import Continuation, Positions, ScoreOptions, compare, make_continuation, play
from hmx.types import Array, Key


class Lever(NamedTuple):
    """Pays `sure + lucky * Bernoulli(chance)`, once, `delay` steps after it was pulled (1: at once)."""

    sure: float = 0.0
    lucky: float = 0.0
    chance: float = 0.0
    delay: int = 1


NONE = Lever()
CASES = {
    "fork": (Lever(1.0), NONE, None),
    "eight to three": (Lever(0.0, 1.0, 0.8), Lever(0.0, 1.0, 0.3), None),
    "nine to six": (Lever(0.0, 1.0, 0.9), Lever(0.0, 1.0, 0.6), None),
    "coins": (Lever(0.0, 1.0, 0.5), Lever(0.0, 1.0, 0.5), None),
    "equal means": (Lever(0.0, 0.9, 0.5), Lever(0.45), None),
    "aggregation": (NONE, Lever(1.0), Lever(3.0)),
    "only one": (Lever(1.0), None, None),
    "slow": (Lever(1.0, delay=5), NONE, None),
    "same, slow": (Lever(2.0, 1.0, 0.5, 3), Lever(2.0, 1.0, 0.5, 3), Lever(2.0, 1.0, 0.5, 3)),
}
NAMES = list(CASES)
NUM_ACTIONS = 3


class Pull(NamedTuple):
    """Which case, the lever pulled (-1: none yet) and the steps since."""

    case: Array
    lever: Array
    waited: Array


@cache
def make_machine(max_steps: int = 0) -> Env:
    """One pull per episode. A new episode is always of the case `fork`, so that what it pays would show."""
    spec = EnvSpec(
        id="machine",
        obs_shape=(2,),
        obs_dtype=jnp.float32,
        num_actions=NUM_ACTIONS,
        num_agents=1,
        max_steps=max_steps,
        reward_terms=("pay",),
        action_groups=(("lever", 0, NUM_ACTIONS),),
        action_names=("first", "second", "third"),
    )
    levers = [[lever or NONE for lever in case] for case in CASES.values()]
    sure, lucky, chance, delay = np.moveaxis(np.array(levers, np.float32), -1, 0)
    there = np.array([[lever is not None for lever in case] for case in CASES.values()])

    def move(now: Pull, action: Array, key: Key) -> tuple[Pull, dict[str, Array], Array]:
        lever = jnp.where(now.lever < 0, action, now.lever)
        at = now.case, lever
        paid = jnp.asarray(sure)[at] + jnp.asarray(lucky)[at] * (jax.random.uniform(key) < jnp.asarray(chance)[at])
        over = now.waited + 1 >= jnp.asarray(delay)[at]
        return Pull(now.case, lever, now.waited + 1), {"pay": jnp.where(over, paid, 0.0)}, over

    def start(key: Key) -> Pull:
        return Pull(jnp.int32(0), jnp.int32(-1), jnp.int32(0))

    def observe(now: Pull) -> Array:
        return jnp.stack([now.case, now.lever]).astype(jnp.float32)

    return batched(spec, Game(start, move, observe, lambda now: jnp.asarray(there)[now.case]))


def at(env: Env, names: list[str], first_id: int = 0) -> Positions:
    """Untouched machines of these cases, with the action taken in them."""
    case = np.array([NAMES.index(name) for name in names], np.int32)
    state, _ = jax.jit(env.reset)(jax.random.split(jax.random.key(0), len(names)))
    state = state._replace(core=Pull(case, state.core.lever, state.core.waited))
    there = np.array([[lever is not None for lever in CASES[name]] for name in names])
    obs = np.stack([case, np.full_like(case, -1)], 1).astype(np.float32)
    ids = np.uint32(first_id) + np.arange(len(names), dtype=np.uint32)
    return jax.device_put(Positions(state, obs[:, None], there[:, None], np.zeros((len(names), 1), np.int32), ids))


WEIGHTS = np.log([0.5, 0.125, 0.375]).astype(np.float32)


def levels(params: Array, obs: Array) -> Array:
    """The same preferences everywhere."""
    return jnp.broadcast_to(params, (*obs.shape[:-1], NUM_ACTIONS))


def worth(params: Array, obs: Array, legal: Array) -> Array:
    """The exact value of a machine of case `slow` two steps after its pull (gamma .9), and more if all seems legal."""
    exact = jnp.where((obs[:, 0, 0] == NAMES.index("slow")) & (obs[:, 0, 1] == 0), 0.9**2, 0.0)
    return exact + jnp.where(legal.all((1, 2)), 0.1, 0.0)


POLICY: Continuation = make_continuation(levels, "softmax", 1.0, worth)


def options_of(**changes: object) -> ScoreOptions:
    """Options of these tests, which do not bootstrap unless they say so."""
    return ScoreOptions(**{"bootstrap": False, "gamma": 0.99, "team_reward": "mean", **changes})


@cache
def player(options: ScoreOptions, max_steps: int = 0):
    """`play`, compiled once for all horizons, metrics and aggregates."""
    env = make_machine(max_steps)
    return jax.jit(lambda params, positions, key, horizon: play(env, POLICY, params, positions, key, options, horizon))


@cache
def comparer(options: ScoreOptions):
    """`compare`, compiled once for all that it does not look at."""
    return jax.jit(lambda outcomes: compare(outcomes, options))


def outcomes_of(names: list[str], options: ScoreOptions, *, key: int = 0, max_steps: int = 0, taken: tuple = ()):
    """What follows the levers of these cases, some of their steps `taken` already."""
    plain = replace(options, metric="w1", aggregate="policy", null=options.needs_null, horizon=1, corrected=False)
    positions = at(make_machine(max_steps), names)
    if taken:
        positions = positions._replace(env_state=positions.env_state._replace(steps=jnp.array(taken, jnp.int32)))
    return player(plain, max_steps)(jnp.asarray(WEIGHTS), positions, jax.random.key(key), options.horizon)


def scores_of(names: list[str], options: ScoreOptions, **settings):
    """Scores of these cases."""
    only = options_of(
        metric=options.metric, aggregate=options.aggregate, rollouts=options.rollouts, corrected=options.corrected
    )
    return comparer(only)(outcomes_of(names, options, **settings))
