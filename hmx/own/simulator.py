"""Simulators, of Gymnasium and of users, behind the contract of `hmx.envs`.

Worker processes step them (`hmx.simulators`). So `reset` only gives the shapes of a first step, which the workers fill
in, and `step` refuses. Programs that play copies of a position step those of `hmx.own.copies`.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import NoReturn

import jax.numpy as jnp

from hmx.config.extras import needed
from hmx.config.schema import EnvConfig
from hmx.envs.protocol import ON_HOST, Env, EnvSpec, EnvState, Quantity, SimulatorSource, numbers_of
from hmx.errors import HmxError
from hmx.own.copies import copied
from hmx.registry.observations import policy_only, value_only
from hmx.registry.user_code import check_code, reference_of
from hmx.simulators.pool import measure
from hmx.simulators.recipe import Recipe
from hmx.types import Array, Key, Timestep


def make_gymnasium(cfg: EnvConfig) -> Env:
    """Build `gymnasium/NAME`, with the id of Gymnasium as the name.

    Raises:
        HmxError: the extra or a package of the environment is missing, there is no such environment, its module may
            not run, or its spaces cannot be used.
    """
    reference = reference_of(cfg.id, "env.id")
    digest = check_code(reference, "env.id", cfg.sha256) if reference else ""
    with needed("gymnasium"):  # asked here, since starting a worker takes longer
        if find_spec("gymnasium") is None:
            raise ModuleNotFoundError(name="gymnasium")
    name = cfg.id.partition("/")[2]
    return simulated(Recipe(cfg.id, name, reference, sha256=digest, max_steps=cfg.max_steps), cfg)


def simulated(recipe: Recipe, cfg: EnvConfig) -> Env:
    """Build the environment of a simulator, which a worker makes once to learn its form."""
    facts = measure(recipe, cfg.worker_timeout)
    limits = [limit for limit in (facts.limit, recipe.max_steps) if limit]
    ranges = enumerate(zip(facts.action_low, facts.action_high, strict=True))
    names = tuple(f"action_{i}" for i in range(facts.num_actions)) if len(facts.action_parts) == 1 else ()
    obs_parts = dict(facts.obs_parts)
    spec = EnvSpec(
        id=recipe.env_id,
        obs_shape=facts.obs_shape,
        obs_dtype=jnp.dtype(facts.obs_dtype),
        num_actions=facts.num_actions,
        max_steps=min(limits, default=0),
        action_groups=(("action", 0, facts.num_actions),) if names else (),
        action_names=names,
        action_dim=facts.action_dim,
        action_parts=facts.action_parts if len(facts.action_parts) > 1 else (),
        simulator=SimulatorSource(recipe, facts, cache(lambda: copied(spec, recipe, facts, cfg))),
        step_seconds=facts.step_seconds,
        action_quantities=tuple(Quantity(f"action_{i}", "", *limits) for i, limits in ranges),
        value_only=value_only(obs_parts),
        policy_only=policy_only(obs_parts),
        obs_quantities=numbers_of(obs_parts),
    )

    def reset(keys: Key) -> tuple[EnvState, Timestep]:
        batch = (keys.shape[0], 1)
        obs = jnp.zeros((*batch, *spec.obs_shape), spec.obs_dtype)
        legal = jnp.ones((*batch, spec.num_actions), bool)
        nothing, ended = jnp.zeros(batch, jnp.float32), jnp.zeros(batch[:1], bool)
        terms = {"reward": nothing[:, 0]}
        return (), Timestep(obs, legal, obs, legal, nothing, ended, ended, nothing > 0, terms, {})

    def step(state: EnvState, action: Array, keys: Key) -> NoReturn:
        raise HmxError(f"cannot step {spec.id} in a compiled program: workers step it")

    return Env(spec, reset, step, stepper=ON_HOST)
