"""The one factory of environments."""

from __future__ import annotations

import difflib
from collections.abc import Callable

from hmx.config.env_facts import step_limit
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
    "cartpole": lambda cfg, weights: make_cartpole(step_limit(cfg)),
}


def make_env(cfg: EnvConfig, weights: RewardWeights) -> Env:
    """The environment `cfg.id`, each action repeated as `cfg.action_repeat` says; `weights` matter to HackMatrix only.

    Raises:
        HmxError: there is no such environment.
    """
    if cfg.id not in FACTORIES:
        near = difflib.get_close_matches(cfg.id, FACTORIES, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise HmxError(f"unknown environment: {cfg.id}", f"{hint}known: {', '.join(FACTORIES)}")
    return repeated(FACTORIES[cfg.id](cfg, weights), cfg.action_repeat)
