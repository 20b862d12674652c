"""Environments of MuJoCo Playground (github.com/google-deepmind/mujoco_playground)."""

from __future__ import annotations

from hmx.envs.protocol import Env
from hmx.envs.single import named
from hmx.envs.suites.importing import importing, quiet
from hmx.envs.suites.physics import make_physics
from hmx.errors import HmxError

OVERRIDES = {"impl": "jax"}
"""MJX in JAX, on any device. Playground's default is Warp, which compiles its own kernels at first use."""


def make_playground(env_id: str, max_steps: int) -> Env:
    """Build `playground/NAME` of MuJoCo Playground (Zakka et al. 2025, arXiv:2502.08844), simulated by MJX.

    It is an environment of the DeepMind control suite, in Playground's default configuration.

    Locomotion and manipulation are refused: to build one, Playground clones the robots of MuJoCo Menagerie from
    GitHub into its own installation.

    Raises:
        HmxError: Playground is missing, or its control suite has no such environment.
    """
    with importing("playground"):
        import mujoco_playground as playground
    suite = playground.dm_control_suite
    known, robots = list(suite.ALL_ENVS), set(playground.registry.ALL_ENVS).difference(suite.ALL_ENVS)
    if env_id.partition("/")[2] in robots:
        words = f"{env_id} needs robots that Playground downloads from GitHub when it is built"
        raise HmxError(f"{words}; taken are the environments of its control suite", f"known: {', '.join(known)}")
    name = named(env_id, known, "Playground's control suite")
    with quiet():
        theirs = suite.load(name, config_overrides=OVERRIDES)
    return make_physics(env_id, theirs, max_steps)
