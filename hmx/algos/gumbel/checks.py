"""Find what keeps a search from running in a configuration; no JAX."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from hmx.algos.ppo import checks as ppo_checks
from hmx.config.problem import Problem, fix
from hmx.config.schema import Config
from hmx.registry.check import needs_discrete
from hmx.registry.sizes import Sizes


def check(cfg: Config, sizes: Sizes | None, bad: Collection[str]) -> Iterator[Problem]:
    """Find problems that prevent a search."""
    yield from ppo_checks.check(cfg, sizes, bad)
    yield from needs_discrete(sizes, "a search")
    if cfg.env.num_agents > 1:
        words = "a search needs an environment with one agent"
        yield Problem("several_agents", ("env.num_agents", "algo.name"), words, fix("algo.name", "ppo"))
    if cfg.ppo.obs_norm == "env":
        words = "a search simulates steps, which do not normalise observations"
        yield Problem("searched_obs", ("ppo.obs_norm", "algo.name"), words, fix("ppo.obs_norm", "network"))
    if cfg.gumbel.symmetries and cfg.net.rnn != "none":
        words = "a recurrent network remembers the board as it was, not under a symmetry"
        yield Problem("recurrent_symmetries", ("gumbel.symmetries", "net.rnn"), words, fix("gumbel.symmetries", False))


def warn(cfg: Config) -> Iterator[Problem]:
    """Find settings that run but may be unintended."""
    yield from ppo_checks.unused_reference(cfg.ppo)
