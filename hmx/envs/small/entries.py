"""What the small environments say of themselves; no JAX."""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType
from typing import TYPE_CHECKING

from hmx.config.option import opt
from hmx.registry.entry import EnvEntry

if TYPE_CHECKING:
    from hmx.config.problem import Problem
    from hmx.config.schema import Config

_SLIP = opt(0.1, "probability that corridor moves against the action", "probability", ge=0, le=1)
_DELAY = opt(8, "steps between cue and question", "steps", ge=1)


def _unasked(cfg: Config) -> Iterator[Problem]:
    from hmx.config.problem import Problem, fix  # which need the schema, and so this entry

    if 0 < cfg.env.max_steps <= cfg.env.recall_delay:
        words = "episodes are truncated before the question comes"
        yield Problem("no_question", ("env.max_steps", "env.recall_delay"), words, fix("env.max_steps", 1000))


_SMALL = "hmx.envs.small"
_COUNTED = 10  # steps after which an episode of counting ends by itself

_TASKS = (
    EnvEntry(
        "counting", f"{_SMALL}.counting:make_counting", lambda cfg, _: (cfg.max_steps, _COUNTED),
        endless=True, masked=True,
    ),
    EnvEntry(
        "corridor", f"{_SMALL}.corridor:make_corridor", lambda cfg, _: (cfg.max_steps, cfg.slip),
        masked=True, steady_terms=("step_cost",), options=MappingProxyType({"EnvConfig": {"slip": (float, _SLIP)}}),
    ),
    EnvEntry("frozenlake", f"{_SMALL}.frozenlake:make_frozenlake", lambda cfg, _: (cfg.max_steps, False)),
    EnvEntry("frozenlake-slippery", f"{_SMALL}.frozenlake:make_frozenlake", lambda cfg, _: (cfg.max_steps, True)),
    EnvEntry(
        "recall", f"{_SMALL}.recall:make_recall", lambda cfg, _: (cfg.max_steps, cfg.recall_delay),
        masked=True, warn=_unasked, options=MappingProxyType({"EnvConfig": {"recall_delay": (int, _DELAY)}}),
    ),
    EnvEntry(
        "rendezvous", f"{_SMALL}.rendezvous:make_rendezvous", lambda cfg, _: (cfg.max_steps, cfg.num_agents),
        num_agents=0, masked=True,
    ),
    EnvEntry("pendulum", f"{_SMALL}.pendulum:make_pendulum", lambda cfg, _: (cfg.max_steps,), limit=200, endless=True),
    EnvEntry(
        "cartpole", f"{_SMALL}.cartpole:make_cartpole", lambda cfg, _: (cfg.max_steps, False),
        limit=500, steady_terms=("upright",),
    ),
    EnvEntry(
        "cartpole-discrete", f"{_SMALL}.cartpole:make_cartpole", lambda cfg, _: (cfg.max_steps, True),
        limit=500, steady_terms=("upright",),
    ),
)  # fmt: skip

ENTRIES = tuple(task._replace(small=True) for task in _TASKS)
