"""A small grid game: pick up the coin, then leave through the door in the far corner.

Train on it:   hmx train --env ./example_game.py --steps 200k
Look at it:    hmx watch --random --env ./example_game.py
Set options:   hmx train --env ./example_game.py --set env.my.size=7

A state is any pytree of JAX arrays whose shapes never change. Write `reset` and `step` for one game: hmx runs
thousands side by side, starts a new episode where one ends, and truncates episodes after MAX_STEPS.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

ACTIONS = ("up", "down", "left", "right")  # or a number, or ACTION_DIM = 2 for two numbers in [-1, 1]
MAX_STEPS = 50  # `--set env.max_steps=N` can only shorten episodes
MOVES = jnp.array([[-1, 0], [1, 0], [0, -1], [0, 1]])


@dataclass(frozen=True)
class Options:
    """Options of `--set env.my.NAME=VALUE`; functions below with a parameter `options` get them."""

    size: int = 5
    step_cost: float = 0.01


class GridState(NamedTuple):
    """One game: places are (row, column)."""

    player: jax.Array
    coin: jax.Array
    has_coin: jax.Array


def reset(key, options):
    """Start an episode: return the state and the first observation. Draw random numbers from `key` only."""
    cell = jax.random.randint(key, (), 1, options.size**2)  # anywhere but where the player starts
    coin = jnp.stack([cell // options.size, cell % options.size])
    state = GridState(jnp.array([0, 0]), coin, jnp.array(False))
    return state, observe(state, options)


def step(state, action, key, options):
    """Take an action: return the state, its observation, the reward and whether the episode is over.

    The reward is one number, or a dict of named terms, which hmx adds up and logs one by one.
    """
    player = jnp.clip(state.player + MOVES[action], 0, options.size - 1)
    has_coin = state.has_coin | (player == state.coin).all()
    left = has_coin & (player == options.size - 1).all()
    reward = {"coin": has_coin & ~state.has_coin, "door": left, "step_cost": -options.step_cost}
    state = GridState(player, state.coin, has_coin)
    return state, observe(state, options), reward, left


def observe(state, options):
    """Return the observation as one array: here two one-hot places and a flag."""
    coin = jnp.where(state.has_coin, -1, state.coin)  # no place once it is picked up
    places = jax.nn.one_hot(jnp.concatenate([state.player, coin]), options.size)
    return jnp.append(places.ravel(), state.has_coin)


def legal(state, options):
    """Return which actions are legal (optional). Every state needs at least one."""
    target = state.player[None] + MOVES
    return ((target >= 0) & (target < options.size)).all(-1)


def render(state, options):
    """Return a picture for `hmx watch` as text (optional). Here `state` holds NumPy arrays."""
    rows = [["."] * options.size for _ in range(options.size)]
    rows[-1][-1] = "D"
    if not state.has_coin:
        rows[state.coin[0]][state.coin[1]] = "$"
    rows[state.player[0]][state.player[1]] = "@"
    return "\n".join(" ".join(row) for row in rows)
