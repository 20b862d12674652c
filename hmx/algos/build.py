"""Build the algorithm that a configuration names, built in or the user's own."""

from __future__ import annotations

from hmx.algos.types import Algorithm
from hmx.config.references import imported
from hmx.config.schema import Config
from hmx.envs.protocol import Env
from hmx.registry.algorithms import find_algorithm


def make_algorithm(cfg: Config, env: Env) -> Algorithm:
    """Build the algorithm `cfg.algo.name` on `cfg.env.num_envs` copies of `env`; `cfg` must have no problems.

    Raises:
        HmxError: own code may not run or fails.
    """
    algorithm: Algorithm = imported(find_algorithm(cfg.algo.name).make)(cfg, env)
    return algorithm
