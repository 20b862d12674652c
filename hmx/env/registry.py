"""The one factory of environments."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable

import jax

from hmx.config.env_facts import EnvFacts, extra_of, facts_known, learn_facts, step_limit
from hmx.config.schema import EnvConfig, RewardWeights
from hmx.env.cartpole import make_cartpole
from hmx.env.corridor import make_corridor
from hmx.env.counting import make_counting
from hmx.env.frozenlake import make_frozenlake
from hmx.env.pendulum import make_pendulum
from hmx.env.protocol import Env
from hmx.env.recall import make_recall
from hmx.env.rendezvous import make_rendezvous
from hmx.env.repeat import repeated
from hmx.errors import HmxError

COUNTING_LENGTH = 10


def _hackmatrix(cfg: EnvConfig, weights: RewardWeights) -> Env:
    from hmx.env.hackmatrix import make_hackmatrix  # the rules' tables are built on import: only for who plays

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


def _gymnax(cfg: EnvConfig) -> Env:
    from hmx.env.gymnax import make_gymnax  # of an optional extra

    return make_gymnax(cfg.id, cfg.max_steps)


def _brax(cfg: EnvConfig) -> Env:
    from hmx.env.brax import make_brax

    return make_brax(cfg.id, cfg.max_steps)


def _playground(cfg: EnvConfig) -> Env:
    from hmx.env.playground import make_playground

    return make_playground(cfg.id, cfg.max_steps)


def _smax(cfg: EnvConfig) -> Env:
    from hmx.env.smax import make_smax  # of an optional extra

    return make_smax(cfg.id, step_limit(cfg), cfg.world_state)


EXTRAS: dict[str, Callable[[EnvConfig], Env]] = {
    "gymnax": _gymnax,
    "brax": _brax,
    "playground": _playground,
    "smax": _smax,
}
"""By what stands before the slash of an id."""


def make_env(cfg: EnvConfig, weights: RewardWeights) -> Env:
    """Build the environment `cfg.id` with actions repeated `cfg.action_repeat` times; only HackMatrix reads `weights`.

    Raises:
        HmxError: there is no such environment, or the extra that brings it is not installed.
    """
    if extra := extra_of(cfg.id):
        env = EXTRAS[extra](cfg)
        if not facts_known(cfg):
            learn_facts(cfg.id, _measured(env))
        return repeated(env, cfg.action_repeat)
    if cfg.id not in FACTORIES:
        near = difflib.get_close_matches(cfg.id, FACTORIES, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise HmxError(f"unknown environment: {cfg.id}", f"{hint}known: {', '.join(FACTORIES)}")
    return repeated(FACTORIES[cfg.id](cfg, weights), cfg.action_repeat)


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
