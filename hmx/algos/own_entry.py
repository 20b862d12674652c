"""The defaults of an algorithm that a user or an installed package provides; no JAX."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from hmx.algos.ppo import checks, entry
from hmx.config.problem import Problem
from hmx.config.schedules import SCHEDULED
from hmx.config.schema import Config
from hmx.registry.algorithms import AlgorithmEntry, GradientSteps, PartName
from hmx.registry.sizes import Sizes


def gradient_steps(cfg: Config) -> GradientSteps:
    """Count the whole batch as one minibatch; how many gradient steps it makes is unknown."""
    return GradientSteps(cfg.env.num_envs * cfg.algo.num_steps * cfg.env.num_agents, 0)


def advice(cfg: Config, part: PartName) -> str:
    """Say where to look, since the update is not hmx's."""
    return f"Look at the update of {cfg.algo.name}." if part == "learning" else ""


def check(cfg: Config, sizes: Sizes | None, bad: Collection[str]) -> Iterator[Problem]:
    """Find switches of PPO that contradict each other, since the algorithm may use PPO's components."""
    yield from checks.switches(cfg.ppo, cfg.net.rnn, cfg.env)


ENTRY = AlgorithmEntry(
    name="",
    make="hmx.own.algorithm:own_algorithm",
    gradient_steps=gradient_steps,
    policy_outputs="hmx.own.algorithm:policy_outputs",
    schedules=tuple(SCHEDULED),
    advice=advice,
    check=check,
    warn=checks.known_bugs,
    aspects=entry.ENTRY.aspects,
    own=True,
)
