"""What the ways out to other libraries have in common; see `hmx.env.to_gymnax` and `hmx.env.to_gymnasium`."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp

from hmx.config.schema import EnvConfig, RewardWeights
from hmx.env.protocol import Env
from hmx.env.registry import make_env
from hmx.errors import HmxError

INSTALL = "pip install 'hmx[gymnax]'"


def exported(env_id: str, weights: RewardWeights | None, settings: dict[str, Any]) -> Env:
    """A single-agent environment whose observations are float32.

    Args:
        env_id: of the environment; HackMatrix shows its 1,545 floats, unless `obs` is given.
        weights: of HackMatrix's reward.
        settings: fields of `EnvConfig`.

    Raises:
        HmxError: there is no such environment or setting, or it has several agents.
    """
    known = [field.name for field in dataclasses.fields(EnvConfig)]
    if wrong := [name for name in settings if name not in known]:
        raise HmxError(f"no setting of an environment: {', '.join(wrong)}", f"settings are {', '.join(known)}")
    env = make_env(EnvConfig(**{"id": env_id, "obs": "flat", **settings}), weights or RewardWeights())
    if env.spec.num_agents != 1:
        raise HmxError(f"{env_id} has {env.spec.num_agents} agents", "num_agents=1")
    if env.spec.obs_dtype != jnp.float32:
        raise HmxError("packed observations are of no use to other networks", "leave obs out")
    return env


def missing(error: ModuleNotFoundError) -> HmxError:
    """What a user is told who lacks the library that an environment is to be exported to."""
    return HmxError(f"exporting environments needs a package that is not installed: {error.name}", INSTALL)
