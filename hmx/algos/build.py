"""Learning algorithms as records of pure functions."""

from __future__ import annotations

from collections.abc import Callable

from hmx.algos.dqn.update import make_dqn
from hmx.algos.gumbel.update import make_gumbel
from hmx.algos.own import own_algorithm
from hmx.algos.ppo.update import make_ppo
from hmx.algos.types import Algorithm
from hmx.config.schema import Config
from hmx.envs.protocol import Env
from hmx.registry import rules

__all__ = ["Algorithm", "make_algorithm"]

ALGORITHMS: dict[str, Callable[[Config, Env], Algorithm]] = {"ppo": make_ppo, "gumbel": make_gumbel, "dqn": make_dqn}


def make_algorithm(cfg: Config, env: Env) -> Algorithm:
    """Build the algorithm `cfg.algo.name` on `cfg.env.num_envs` copies of `env`.

    Raises:
        HmxError: the configuration has problems.
    """
    rules.check(cfg)
    make = ALGORITHMS.get(cfg.algo.name)
    return own_algorithm(cfg, env) if make is None else make(cfg, env)
