"""The one factory of environments: built in, of extras, and of users."""

from __future__ import annotations

import math
from dataclasses import replace

import jax

from hmx.config.references import imported
from hmx.config.schema import ENV_IDS, EnvConfig, RewardWeights
from hmx.envs.autoreset import repeated
from hmx.envs.protocol import Env
from hmx.envs.single import unknown
from hmx.errors import HmxError, nearest
from hmx.registry.environments import find_environment, find_source, names_in
from hmx.registry.observations import is_image
from hmx.registry.sizes import Sizes


def make_env(cfg: EnvConfig, weights: RewardWeights) -> Env:
    """Build the environment of a configuration; see `build_env`."""
    return build_env(cfg, weights)[0]


def build_env(cfg: EnvConfig, weights: RewardWeights) -> tuple[Env, EnvConfig]:
    """Build the environment `cfg.id` with actions repeated `cfg.action_repeat` times; only HackMatrix reads `weights`.

    Returns:
        The environment, and its configuration with every own option, the file's SHA-256 and the number of agents.

    Raises:
        HmxError: there is no such environment, the extra that brings it is not installed, or the user code may
            not run or does not work.
    """
    source = find_source(cfg.id)
    entry = find_environment(cfg.id)
    if source is None:
        near = nearest(cfg.id, ENV_IDS)
        hint = f"did you mean {near}? " if near else ""
        raise HmxError(f"unknown environment: {cfg.id}", f"{hint}known: {', '.join(ENV_IDS)}")
    if source.own:
        env, cfg = imported("hmx.own.environment:make_own")(source, cfg)
    elif entry is None:
        raise unknown(cfg.id, names_in(source.target))
    else:
        limited = replace(cfg, max_steps=entry.step_limit(cfg.max_steps))
        env = imported(entry.make)(*entry.arguments(limited, weights))
        if env.spec.simulator is not None:
            cfg = replace(cfg, sha256=env.spec.simulator.recipe.sha256)
    return repeated(env, cfg.action_repeat), cfg


def sizes_of(env: Env) -> Sizes:
    """Measure the sizes of an environment; nothing is computed."""
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 1))
    state, timestep = jax.eval_shape(env.reset, keys)
    spec = env.spec
    features = math.prod(spec.obs_shape)
    if spec.decode is not None:
        features = jax.eval_shape(spec.decode, timestep.obs).shape[-1]
    return Sizes(
        num_actions=spec.num_actions,
        action_dim=spec.action_dim,
        num_agents=spec.num_agents,
        max_steps=spec.max_steps,
        features=features,
        state_bytes=sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state)),
        simulated=spec.simulator is not None or spec.copied,
        value_only=spec.value_only,
        image=is_image(spec.obs_shape),
        statistics=spec.simulator.facts.statistics if spec.simulator is not None else (),
    )
