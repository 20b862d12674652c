"""Balancing a pole on a cart that is pushed with any force up to 10 N."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from hmx.env.autoreset import Game, batched
from hmx.env.protocol import Env, EnvSpec
from hmx.types import Array, Key

GRAVITY, CART, POLE, HALF_LENGTH = 9.8, 1.0, 0.1, 0.5  # m/s^2, kg, kg, m
MAX_FORCE, DT = 10.0, 0.02
MAX_POSITION, MAX_ANGLE = 2.4, math.radians(12.0)


class Cart(NamedTuple):
    """Position (m), velocity, angle of the pole from upright (radians), angular velocity."""

    position: Array
    velocity: Array
    angle: Array
    spin: Array


def make_cartpole(max_steps: int) -> Env:
    """The cart-pole of Barto, Sutton & Anderson (1983, IEEE Trans. SMC 13) with a continuous force.

    Constants, starts, Euler step and limits are those of Gym's CartPole-v1; there the force is 10 N to the left or to
    the right, here it is the action, in [-1, 1], times 10 N. Every step pays 1. The episode terminates where the cart
    leaves 2.4 m or the pole 12 degrees; the published task cuts it after 500 steps.

    Args:
        max_steps: steps after which an episode is truncated; 0 never.
    """
    spec = EnvSpec(
        id="cartpole",
        obs_shape=(4,),
        obs_dtype=jnp.float32,
        num_actions=0,
        num_agents=1,
        max_steps=max_steps,
        reward_terms=("upright",),
        action_groups=(),
        action_names=(),
        action_dim=1,
    )

    def start(key: Key) -> Cart:
        return Cart(*jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05))

    return batched(spec, Game(start, move, lambda cart: jnp.stack(cart), lambda cart: jnp.ones(0, bool)))


def move(cart: Cart, action: Array, key: Key) -> tuple[Cart, dict[str, Array], Array]:
    """One Euler step of 0.02 s; `action [1]` in units of 10 N."""
    force = MAX_FORCE * jnp.clip(action[0], -1.0, 1.0)
    sine, cosine = jnp.sin(cart.angle), jnp.cos(cart.angle)
    mass = CART + POLE
    push = (force + POLE * HALF_LENGTH * jnp.square(cart.spin) * sine) / mass
    spin_up = (GRAVITY * sine - cosine * push) / (HALF_LENGTH * (4.0 / 3.0 - POLE * jnp.square(cosine) / mass))
    speed_up = push - POLE * HALF_LENGTH * spin_up * cosine / mass
    after = Cart(
        cart.position + DT * cart.velocity,
        cart.velocity + DT * speed_up,
        cart.angle + DT * cart.spin,
        cart.spin + DT * spin_up,
    )
    fallen = (jnp.abs(after.position) > MAX_POSITION) | (jnp.abs(after.angle) > MAX_ANGLE)
    return after, {"upright": jnp.float32(1.0)}, fallen
