"""Probe environments: the smallest games whose values and best actions are known, each testing one thing more."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from training import train_seeds

from hmx.envs.autoreset import Game, batched
from hmx.envs.protocol import Env, EnvSpec

GAMMA = 0.8


class Probe(NamedTuple):
    """An environment, and what a trained agent must say: `(observation, value, best action or None)` each."""

    env: Env
    answers: tuple[tuple[float, float, int | None], ...]


def _spec(name, max_steps=0):
    return EnvSpec(
        id=name,
        obs_shape=(1,),
        obs_dtype=jnp.float32,
        num_actions=2,
        num_agents=1,
        max_steps=max_steps,
        reward_terms=("probe",),
        action_groups=(("first", 0, 1), ("second", 1, 2)),
        action_names=("first", "second"),
    )


def _game(start, move):
    """The state is the observation; every action is legal."""
    return Game(start, move, lambda obs: obs[None], lambda obs: jnp.ones(2, bool))


def _zero(key):
    return jnp.float32(0.0)


def _coin(key):
    return jnp.where(jax.random.bernoulli(key), 1.0, -1.0).astype(jnp.float32)


def _one_step(reward):
    """One step from a state to its end."""
    return lambda obs, action, key: (obs, {"probe": reward(obs, action)}, jnp.ones((), bool))


def constant_reward():
    """Always 1: is the value head trained at all?"""
    env = batched(_spec("constant"), _game(_zero, _one_step(lambda obs, action: jnp.float32(1.0))))
    return Probe(env, ((0.0, 1.0, None),))


def reward_follows_observation():
    """The reward is the observation: does the value depend on the right one?"""
    env = batched(_spec("observation"), _game(_coin, _one_step(lambda obs, action: obs)))
    return Probe(env, ((1.0, 1.0, None), (-1.0, -1.0, None)))


def delayed_reward():
    """Two steps, paid at the end: is the discount applied once?"""

    def move(obs, action, key):
        return obs + 1.0, {"probe": obs}, obs == 1.0

    return Probe(batched(_spec("delayed"), _game(_zero, move)), ((0.0, GAMMA, None), (1.0, 1.0, None)))


def reward_follows_action():
    """The second action pays 1, the first costs 1: does the policy move?"""
    env = batched(_spec("action"), _game(_zero, _one_step(lambda obs, action: 2.0 * action - 1.0)))
    return Probe(env, ((0.0, 1.0, 1),))


def action_must_match_observation():
    """The first action is right for -1, the second for 1: do actions and observations belong together?"""
    env = batched(_spec("match"), _game(_coin, _one_step(lambda obs, action: obs * (2.0 * action - 1.0))))
    return Probe(env, ((1.0, 1.0, 1), (-1.0, 1.0, 0)))


def never_ending():
    """1 per step for ever, cut after 3 steps: the cut must not lower the value below 1 / (1 - gamma)."""

    def move(obs, action, key):
        return obs, {"probe": jnp.float32(1.0)}, jnp.zeros((), bool)

    return Probe(batched(_spec("never_ending", max_steps=3), _game(_zero, move)), ((0.0, 1 / (1 - GAMMA), None),))


def matching_for_ever():
    """1 for each action that matches a coin tossed in every step, cut after 3 steps: all of the above but the delay."""

    def move(obs, action, key):
        return _coin(key), {"probe": (1.0 + obs * (2.0 * action - 1.0)) / 2.0}, jnp.zeros((), bool)

    worth = 1 / (1 - GAMMA)
    return Probe(batched(_spec("matching", max_steps=3), _game(_coin, move)), ((1.0, worth, 1), (-1.0, worth, 0)))


PROBES = (
    constant_reward,
    reward_follows_observation,
    delayed_reward,
    reward_follows_action,
    action_must_match_observation,
    never_ending,
    matching_for_ever,
)


def assert_solved(probe, algorithm, updates, sure=0.0):
    """Train seeds and compare the medians over them with the answers; `sure` bounds the probability of an action."""
    states = [state for state, _ in train_seeds(algorithm, updates)]
    for obs, value, action in probe.answers:
        seen, legal, begins = jnp.full((1, 1, 1), obs), jnp.ones((1, 1, 2), bool), jnp.ones(1, bool)
        found = [algorithm.act(state, (), seen, legal, begins, jax.random.key(1), True)[0] for state in states]
        np.testing.assert_allclose(np.median([one.value for one in found]), value, atol=0.05, rtol=0.05)
        if action is not None:
            assert np.median([one.action for one in found]) == action
            assert np.median([one.probs[0, 0, action] for one in found]) > sure
