"""The one factory of environments: built in, of extras, and of users; `load_env` makes one from its `--env` text."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax

from hmx.config.schema import EnvConfig, RewardWeights
from hmx.envs.autoreset import repeated
from hmx.envs.own import Built, make_own
from hmx.envs.protocol import Env
from hmx.envs.small.cartpole import make_cartpole
from hmx.envs.small.corridor import make_corridor
from hmx.envs.small.counting import make_counting
from hmx.envs.small.frozenlake import make_frozenlake
from hmx.envs.small.pendulum import make_pendulum
from hmx.envs.small.recall import make_recall
from hmx.envs.small.rendezvous import make_rendezvous
from hmx.envs.suites.functional import make_craftax, make_jumanji, make_navix, make_xminigrid
from hmx.envs.suites.gymnax import make_gymnax
from hmx.envs.suites.physics import make_brax, make_playground
from hmx.envs.suites.smax import make_smax
from hmx.errors import HmxError, nearest
from hmx.registry.env_facts import EnvFacts, facts_known, find_source, learn, step_limit
from hmx.registry.user_code import allow

COUNTING_LENGTH = 10


def _hackmatrix(cfg: EnvConfig, weights: RewardWeights) -> Env:
    from hmx.envs.hackmatrix.env import make_hackmatrix  # the rules' tables are built on import: only for who plays

    return make_hackmatrix(cfg, weights)


FACTORIES: dict[str, Callable[[EnvConfig, RewardWeights], Env]] = {
    "hackmatrix": _hackmatrix,
    "counting": lambda cfg, weights: make_counting(cfg.max_steps, COUNTING_LENGTH),
    "corridor": lambda cfg, weights: make_corridor(cfg.max_steps, cfg.slip),
    "frozenlake": lambda cfg, weights: make_frozenlake(cfg.max_steps, slippery=False),
    "frozenlake-slippery": lambda cfg, weights: make_frozenlake(cfg.max_steps, slippery=True),
    "recall": lambda cfg, weights: make_recall(cfg.max_steps, cfg.recall_delay),
    "rendezvous": lambda cfg, weights: make_rendezvous(cfg.max_steps, cfg.num_agents),
    "pendulum": lambda cfg, weights: make_pendulum(step_limit(cfg)),
    "cartpole": lambda cfg, weights: make_cartpole(step_limit(cfg), discrete=False),
    "cartpole-discrete": lambda cfg, weights: make_cartpole(step_limit(cfg), discrete=True),
}


EXTRAS: dict[str, Callable[[EnvConfig], Env]] = {
    "gymnax": lambda cfg: make_gymnax(cfg.id, cfg.max_steps),
    "brax": lambda cfg: make_brax(cfg.id, cfg.max_steps),
    "playground": lambda cfg: make_playground(cfg.id, cfg.max_steps),
    "smax": lambda cfg: make_smax(cfg.id, step_limit(cfg), cfg.world_state),
    "craftax": lambda cfg: make_craftax(cfg.id, cfg.max_steps),
    "navix": lambda cfg: make_navix(cfg.id, cfg.max_steps),
    "xminigrid": lambda cfg: make_xminigrid(cfg.id, cfg.max_steps),
    "jumanji": lambda cfg: make_jumanji(cfg.id, cfg.max_steps),
}
"""By what stands before the slash of an id; each imports its package when it is called."""


def load_env(
    env_id: str,
    weights: RewardWeights | None = None,
    my: Mapping[str, bool | int | float | str] | None = None,
    **settings: Any,
) -> Env:
    """Make an environment from what a user typed after `--env`; the code of a file or module is allowed to run.

    Args:
        env_id: built in (`corridor`), of an extra (`gymnax/CartPole-v1`), registered by a package, `./game.py`,
            `./game.py:make` or `package.module:make`.
        weights: of HackMatrix's reward terms.
        my: own options of the environment by name.
        settings: fields of `EnvConfig`, such as `max_steps`.

    Raises:
        HmxError: there is no such environment, it needs a package that is missing, or its code does not work.
    """
    allow(env_id, "env.id")
    cfg = EnvConfig(id=env_id, my=tuple(sorted((my or {}).items())), **settings)
    return build_env(cfg, weights or RewardWeights()).env


def make_env(cfg: EnvConfig, weights: RewardWeights) -> Env:
    """Build the environment of a configuration; see `build_env`."""
    return build_env(cfg, weights).env


def build_env(cfg: EnvConfig, weights: RewardWeights) -> Built:
    """Build the environment `cfg.id` with actions repeated `cfg.action_repeat` times; only HackMatrix reads `weights`.

    Returns:
        The environment, and the configuration; with an environment of the user's, completed by its own options.

    Raises:
        HmxError: there is no such environment, the extra that brings it is not installed, or the code of a user may
            not run or does not work.
    """
    source = find_source(cfg.id)
    if source is None:
        near = nearest(cfg.id, FACTORIES)
        hint = f"did you mean {near}? " if near else ""
        raise HmxError(f"unknown environment: {cfg.id}", f"{hint}known: {', '.join(FACTORIES)}")
    if source.own:
        built = make_own(source, cfg)
    else:
        built = Built(EXTRAS[source.target](cfg) if source.origin == "extra" else FACTORIES[cfg.id](cfg, weights), cfg)
    for known in (cfg, built.cfg):
        if not facts_known(known):
            learn(known, _measured(built.env), built.env.spec.max_steps)
    return built._replace(env=repeated(built.env, cfg.action_repeat))


def _measured(env: Env) -> EnvFacts:
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 1))
    state, timestep = jax.eval_shape(env.reset, keys)
    size = math.prod(env.spec.obs_shape)
    return EnvFacts(
        obs_size=size,
        obs_bytes=size * timestep.obs.dtype.itemsize,
        features=size,
        num_actions=env.spec.num_actions,
        state_bytes=sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state)),
        action_dim=env.spec.action_dim,
        value_only=env.spec.value_only,
    )
