"""The former place of `hmx.envs.protocol`."""

from hmx.envs.protocol import *  # noqa: F403
from hmx.envs.protocol import Env, EnvSpec, EnvState, select, settled, take  # noqa: F401
