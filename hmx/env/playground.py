"""The DeepMind control suite of MuJoCo Playground (Zakka et al. 2025, arXiv:2502.08844), as `playground/NAME`."""

from __future__ import annotations

from hmx.config.textfile import quoted
from hmx.env.extras import near_or_known
from hmx.env.physics import importing, make_physics, quiet
from hmx.env.protocol import Env
from hmx.errors import HmxError

PREFIX = "playground/"
"""What an id here starts with; the rest is the name in Playground's own registry."""

OVERRIDES = {"impl": "jax"}
"""MJX in JAX, on any device. Playground's own default is Warp, which compiles kernels of its own at first use."""


def make_playground(env_id: str, max_steps: int) -> Env:
    """Build `playground/NAME` with Playground's default configuration, simulated by MJX.

    Locomotion and manipulation are refused: to build one, Playground clones the robots of MuJoCo Menagerie from
    GitHub into its own installation.

    Args:
        env_id: such as `playground/WalkerWalk`.
        max_steps: see `make_physics`.

    Raises:
        HmxError: Playground is missing, or its control suite has no such environment.
    """
    name = env_id.removeprefix(PREFIX)
    with importing("playground"):
        import mujoco_playground as playground
    suite = playground.dm_control_suite
    known = list(suite.ALL_ENVS)
    if name not in known:
        if name in playground.registry.ALL_ENVS:
            words = f"{PREFIX}{name} needs robots that Playground downloads from GitHub when it is built"
            raise HmxError(f"{words}; taken are the environments of its control suite", f"known: {', '.join(known)}")
        raise HmxError(
            f"Playground's control suite has no environment {quoted(name)}", near_or_known(name, known, PREFIX)
        )
    with quiet():
        theirs = suite.load(name, config_overrides=OVERRIDES)
    return make_physics(env_id, theirs, max_steps)
