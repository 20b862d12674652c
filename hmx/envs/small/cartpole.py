"""Balancing a pole on a cart by pushing it with 10 N to the left or right, or with any force in between."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from hmx.envs.autoreset import BatchState, Game, batched
from hmx.envs.protocol import Env, EnvSpec, Quantity
from hmx.types import Array, Key

GRAVITY, CART, POLE, HALF_LENGTH = 9.8, 1.0, 0.1, 0.5  # m/s^2, kg, kg, m
MAX_FORCE, DT = 10.0, 0.02
MAX_POSITION, MAX_ANGLE = 2.4, math.radians(12.0)
ACTIONS = ("left", "right")


class Cart(NamedTuple):
    """Position (m), velocity, angle of the pole from upright (radians), angular velocity."""

    position: Array
    velocity: Array
    angle: Array
    spin: Array


def make_cartpole(max_steps: int, discrete: bool) -> Env:
    """Build the cart-pole of Barto, Sutton & Anderson (1983, IEEE Trans. SMC 13).

    Constants, starts, Euler step and limits are those of Gym's CartPole-v1. With `discrete`, as there, the force is 10
    N to the left (action 0) or to the right (1); otherwise it is the action, in [-1, 1], times 10 N. Every step pays 1.
    The episode terminates where the cart leaves 2.4 m or the pole 12 degrees; the published task cuts it after 500
    steps.
    """
    names = ACTIONS if discrete else ()
    spec = EnvSpec(
        id="cartpole-discrete" if discrete else "cartpole",
        obs_shape=(4,),
        num_actions=len(names),
        max_steps=max_steps,
        reward_terms=("upright",),
        action_names=names,
        action_dim=0 if discrete else 1,
        render=_render,
        step_seconds=DT,
        obs_quantities=(
            Quantity("position", "m"),
            Quantity("velocity", "m/s"),
            Quantity("angle from upright", "rad"),
            Quantity("angular velocity", "rad/s"),
        ),
        action_quantities=() if discrete else (Quantity("force", "N", -MAX_FORCE, MAX_FORCE),),
    )

    def start(key: Key) -> Cart:
        return Cart(*jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05))

    move = move_left_or_right if discrete else move_by_force
    return batched(spec, Game(start, move, lambda cart: jnp.stack(cart)))


def _render(state: BatchState) -> str:
    """Draw the only cart of a batch on its track with its pole, and print their positions."""
    position, angle = float(state.core.position[0]), float(state.core.angle[0])
    width, height = 41, 5
    at = round((position / MAX_POSITION + 1) / 2 * (width - 1))
    rows = [[" "] * width for _ in range(height)]
    for up in range(height):  # wider than it is: 12 degrees lean over four columns
        column = at + round(up * math.tan(angle) * 4)
        rows[height - 1 - up][min(max(column, 0), width - 1)] = "|" if abs(angle) < 0.03 else "/" if angle > 0 else "\\"
    track = "-" * width
    track = track[: max(at - 1, 0)] + "[=]"[: width - at + 1] + track[at + 2 :]
    lines = [*("".join(row).rstrip() for row in rows), track]
    return "\n".join([*lines, f"position {position:+.2f} m  angle {math.degrees(angle):+.1f} degrees"])


def move_by_force(cart: Cart, action: Array, key: Key) -> tuple[Cart, dict[str, Array], Array]:
    """Move one step; `action [1]` is a force in units of 10 N."""
    return _pushed(cart, MAX_FORCE * jnp.clip(action[0], -1.0, 1.0))


def move_left_or_right(cart: Cart, action: Array, key: Key) -> tuple[Cart, dict[str, Array], Array]:
    """Move one step; `action` 0 pushes with 10 N to the left, 1 to the right."""
    return _pushed(cart, jnp.where(action == 1, MAX_FORCE, -MAX_FORCE))


def _pushed(cart: Cart, force: Array) -> tuple[Cart, dict[str, Array], Array]:
    """Apply a force in newtons for one Euler step of 0.02 s."""
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
