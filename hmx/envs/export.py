"""Common parts of the interfaces for other libraries, `hmx.envs.to_gymnax` and `hmx.envs.to_gymnasium`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp

from hmx.config.fields import FIELDS
from hmx.config.schema import EnvConfig, RewardWeights
from hmx.envs.protocol import Env
from hmx.envs.registry import make_env
from hmx.errors import HmxError, nearest
from hmx.types import Array

COMMON = ("num_agents", "max_steps", "action_repeat")
"""Settings of every environment that matter outside training."""

ILLEGAL = ("as_is", "next_legal")
RESERVED = frozenset({
    "reward_terms", "terminated", "truncated", "final_observation", "action_mask", "final_action_mask",  # of gymnax
    "action_masks", "final_obs", "final_info", "episode",  # of Gymnasium and its wrappers
})  # fmt: skip
"""Names in `info` that no reward term replaces."""


def exported(env_id: str, weights: RewardWeights | None, illegal: str, settings: dict[str, Any]) -> Env:
    """Build a single-agent environment with float32 observations.

    HackMatrix returns its 1,545 floats. `settings` are options of `EnvConfig`; for `illegal` see `chosen`.

    Raises:
        HmxError: there is no such environment or setting, or it has several agents.
    """
    if illegal not in ILLEGAL:
        raise HmxError(f"illegal={illegal!r} is not a way to treat illegal actions", f"one of {', '.join(ILLEGAL)}")
    known = {field.name: field for field in FIELDS.values() if field.section == "env"}
    if wrong := [name for name in settings if name not in known]:
        offered = [name for name, field in known.items() if env_id in field.envs or name in COMMON]
        near = nearest(wrong[0], offered)
        hint = f"{f'did you mean {near}? ' if near else ''}settings of {env_id} are {', '.join(offered)}"
        raise HmxError(f"no setting of an environment: {', '.join(wrong)}", hint)
    env = make_env(EnvConfig(**{"id": env_id, "obs": "flat", **settings}), weights or RewardWeights())
    if env.spec.num_agents != 1:
        raise HmxError(f"{env_id} has {env.spec.num_agents} agents", "num_agents=1")
    if env.spec.obs_dtype != jnp.float32:
        raise HmxError("packed observations are of no use to other networks", "leave obs out")
    return env


def chosen(env: Env, illegal: str, action: Array, legal: Array) -> Array:
    """Return legal actions `[E, ...]`, given `legal [E, num_actions]`.

    "as_is" leaves illegal actions to the environment. "next_legal" replaces them by the next higher legal action,
    wrapping around after the last.
    """
    if illegal == "as_is" or env.spec.action_dim:
        return action
    number = env.spec.num_actions
    order = (action[:, None] + jnp.arange(number)[None]) % number
    further = jnp.take_along_axis(legal, order, -1).argmax(-1)
    return (action + further.astype(action.dtype)) % number


def named_terms(terms: Mapping[str, Any]) -> dict[str, Any]:
    """Return the reward terms that `info` also has under their own names: those whose names are not taken.

    `RESERVED` names and names that begin with an underscore, as Gymnasium's masks do, are taken. All terms are in
    `info["reward_terms"]`.
    """
    return {name: value for name, value in terms.items() if name not in RESERVED and not name.startswith("_")}
