"""Swinging up a pendulum: Gym's Pendulum-v1."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from hmx.envs.autoreset import BatchState, Game, batched
from hmx.envs.protocol import Env, EnvSpec, Quantity
from hmx.types import Array, Key

GRAVITY, MASS, LENGTH, DT = 10.0, 1.0, 1.0, 0.05
MAX_SPEED, MAX_TORQUE = 8.0, 2.0


class Swing(NamedTuple):
    """Angle from upright in radians, not wrapped, and angular velocity in radians per second."""

    angle: Array
    speed: Array


def make_pendulum(max_steps: int) -> Env:
    """Build Gym's Pendulum-v1 with its equations, constants and starts (Brockman et al. 2016, arXiv:1606.01540).

    The action is the torque in units of 2 Nm. The observation is (cos, sin, angular velocity). Each step costs
    `angle^2 + 0.1 speed^2 + 0.001 torque^2` of the state before it, with the angle wrapped to [-pi, pi). An episode
    never terminates; the published task cuts it after 200 steps. Standing still upright costs nothing; a policy that
    swings up scores about -150.
    """
    spec = EnvSpec(
        id="pendulum",
        obs_shape=(3,),
        max_steps=max_steps,
        reward_terms=("angle", "speed", "torque"),
        action_dim=1,
        render=_render,
        step_seconds=DT,
        obs_quantities=(
            Quantity("cosine of the angle from upright", "", -1.0, 1.0),
            Quantity("sine of the angle from upright", "", -1.0, 1.0),
            Quantity("angular velocity", "rad/s", -MAX_SPEED, MAX_SPEED),
        ),
        action_quantities=(Quantity("torque", "N m", -MAX_TORQUE, MAX_TORQUE),),
    )

    def start(key: Key) -> Swing:
        k_angle, k_speed = jax.random.split(key)
        return Swing(
            jax.random.uniform(k_angle, minval=-jnp.pi, maxval=jnp.pi),
            jax.random.uniform(k_speed, minval=-1.0, maxval=1.0),
        )

    return batched(spec, Game(start, move, observe))


def _render(state: BatchState) -> str:
    """Draw the only pendulum of a batch; upright means that the rod points up."""
    angle, reach = float(state.core.angle[0]), 5
    rows = [[" "] * (4 * reach + 1) for _ in range(2 * reach + 1)]
    for part in range(reach + 1):  # characters are about twice as high as they are wide; Gym turns to the left
        row, column = reach - round(part * math.cos(angle)), 2 * reach - round(2 * part * math.sin(angle))
        rows[row][column] = "+" if part == 0 else "O" if part == reach else "."
    turned = math.degrees((angle + math.pi) % (2 * math.pi) - math.pi)
    lines = ["".join(row).rstrip() for row in rows]
    return "\n".join([*lines, f"angle {turned:+.0f} degrees  speed {float(state.core.speed[0]):+.2f} rad/s"])


def move(swing: Swing, action: Array, key: Key) -> tuple[Swing, dict[str, Array], Array]:
    """Move one step of 0.05 s; `action [1]` is in units of the greatest torque."""
    torque = MAX_TORQUE * jnp.clip(action[0], -1.0, 1.0)
    wrapped = jnp.mod(swing.angle + jnp.pi, 2.0 * jnp.pi) - jnp.pi
    terms = {
        "angle": -jnp.square(wrapped),
        "speed": -0.1 * jnp.square(swing.speed),
        "torque": -0.001 * jnp.square(torque),
    }
    pull = 1.5 * GRAVITY / LENGTH * jnp.sin(swing.angle) + 3.0 / (MASS * LENGTH**2) * torque
    speed = jnp.clip(swing.speed + pull * DT, -MAX_SPEED, MAX_SPEED)
    return Swing(swing.angle + speed * DT, speed), terms, jnp.zeros((), bool)


def observe(swing: Swing) -> Array:
    """Return the observation `[3]`."""
    return jnp.stack([jnp.cos(swing.angle), jnp.sin(swing.angle), swing.speed])
