"""Swinging up a pendulum: Gym's Pendulum-v1."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from hmx.env.autoreset import Game, batched
from hmx.env.protocol import Env, EnvSpec
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

    Args:
        max_steps: steps after which an episode is truncated; 0 never.
    """
    spec = EnvSpec(
        id="pendulum",
        obs_shape=(3,),
        obs_dtype=jnp.float32,
        num_actions=0,
        num_agents=1,
        max_steps=max_steps,
        reward_terms=("angle", "speed", "torque"),
        action_groups=(),
        action_names=(),
        action_dim=1,
    )

    def start(key: Key) -> Swing:
        k_angle, k_speed = jax.random.split(key)
        return Swing(
            jax.random.uniform(k_angle, minval=-jnp.pi, maxval=jnp.pi),
            jax.random.uniform(k_speed, minval=-1.0, maxval=1.0),
        )

    return batched(spec, Game(start, move, observe, lambda swing: jnp.ones(0, bool)))


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
