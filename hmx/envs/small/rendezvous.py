"""Rendezvous: agents in a corridor meet in one cell, and then each goes home."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from hmx.envs.autoreset import TeamGame, batched
from hmx.envs.protocol import Env, EnvSpec
from hmx.types import Array, Key

LENGTH = 5
MEETING, HOME, STEP_COST = 1.0, 1.0, -0.05
ACTIONS = ("left", "stay", "right")


class Corridor(NamedTuple):
    """Where the agents are, whether they have met, and who is home."""

    cell: Array  # [A] int32
    met: Array  # bool
    done: Array  # [A] bool


def make_rendezvous(max_steps: int, num_agents: int) -> Env:
    """Build a row of five cells, on which agents start at random and move simultaneously.

    When all first meet in one cell after a move, each is paid 1. From then on, an agent in its home, the left end for
    even agents and the right end for odd ones, is paid 1 and is done. The episode ends when all are done. Each step
    costs every agent that is not done 0.05. An agent that goes home at once is never paid: the first meeting takes all.
    An agent sees its own cell, the share of the other agents on each cell, its number, and whether they have met. Walls
    bar actions; an agent that is done can only stay.

    Two agents `d` cells apart need `max(1, ceil(d / 2))` steps to meet and together 4 to go home: at best they get
    4 - 0.05 (2 max(1, ceil(d / 2)) + 4), in the mean over all starts 3.676.
    """
    spec = EnvSpec(
        id="rendezvous",
        obs_shape=(2 * LENGTH + num_agents + 1,),
        num_actions=len(ACTIONS),
        num_agents=num_agents,
        max_steps=max_steps,
        reward_terms=("meeting", "home", "step_cost"),
        action_names=ACTIONS,
    )

    def home() -> Array:
        return (jnp.arange(num_agents) % 2) * (LENGTH - 1)

    def start(key: Key) -> Corridor:
        cell = jax.random.randint(key, (num_agents,), 0, LENGTH)
        return Corridor(cell, jnp.zeros((), bool), jnp.zeros(num_agents, bool))

    def move(now: Corridor, action: Array, key: Key) -> tuple[Corridor, dict[str, Array], Array]:
        cell = jnp.clip(now.cell + jnp.where(now.done, 0, action - 1), 0, LENGTH - 1)
        met = now.met | (cell == cell[0]).all()
        done = now.done | (met & (cell == home()))
        terms = {
            "meeting": jnp.where(met & ~now.met, MEETING, 0.0) * jnp.ones(num_agents),
            "home": jnp.where(done & ~now.done, HOME, 0.0),
            "step_cost": jnp.where(now.done, 0.0, STEP_COST),
        }
        return Corridor(cell, met, done), terms, done

    def observe(now: Corridor) -> Array:
        own = jax.nn.one_hot(now.cell, LENGTH)
        others = (own.sum(0, keepdims=True) - own) / max(num_agents - 1, 1)
        met = jnp.full((num_agents, 1), now.met, jnp.float32)
        return jnp.concatenate([own, others, jnp.eye(num_agents), met], axis=-1)

    def legal(now: Corridor) -> Array:
        left, right = ~now.done & (now.cell > 0), ~now.done & (now.cell < LENGTH - 1)
        return jnp.stack([left, jnp.ones(num_agents, bool), right], axis=-1)

    return batched(spec, TeamGame(start, move, observe, legal))
