"""The algorithms, each described by an entry: what the rest of hmx asks it, and where its code is.

Built-in algorithms are folders `hmx/algos/NAME` with a module `entry`. Those of users and of installed packages get the
defaults of `hmx.algos.own_entry`. Entries import no JAX.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, Literal, NamedTuple

from hmx.config.fields import get
from hmx.config.option import ALGORITHMS
from hmx.config.problem import Problem
from hmx.config.references import imported
from hmx.config.schedules import ABSENT_AT_0, SCHEDULED, prio_beta, value
from hmx.config.schema import Config
from hmx.registry.sizes import Sizes

Policy = Literal["sampled", "greedy", "search"]
PartName = Literal["environment", "transport", "network", "learning", "saving", "logging"]
"""A part of training that `hmx bench` measures; only simulators have transport, to and from their workers."""


class GradientSteps(NamedTuple):
    """The gradient steps of an update."""

    minibatch_size: int  # agent steps per gradient step
    per_update: int  # 0 if the algorithm is the user's own
    first_update: int = 0  # the first update that makes any


class Aspect(NamedTuple):
    """One aspect in which implementations of an algorithm differ, as a configuration decides it."""

    id: str  # such as "1.2"
    title: str
    values: dict[str, Any]  # dotted key -> value, of every key that decides it
    meaning: str
    bug: bool = False  # whether a known bug is reproduced
    impact: str = ""  # on learning or speed, as the publication that lists the aspect rates it; "" if it does not
    confidence: str = ""  # of that rating


def no_aspects(cfg: Config, sizes: Sizes | None) -> tuple[Aspect, ...]:
    """Describe no aspect."""
    return ()


def no_search(cfg: Config) -> int | None:
    """Play without a search."""
    return None


class AlgorithmEntry(NamedTuple):
    """The facts about an algorithm that others read.

    Strings such as `hmx.algos.ppo.update:make_ppo` name functions that need JAX; `imported` imports them.
    """

    name: str
    make: str  # (Config, Env) -> Algorithm
    gradient_steps: Callable[[Config], GradientSteps]
    policy_outputs: str  # (Config, Env) -> PolicyOutputs, for scores
    schedules: tuple[str, ...]  # of the hyperparameters in `hmx.config.schedules.SCHEDULED`, those that it reads
    advice: Callable[[Config, PartName], str]  # how to make a part of training faster; empty if it is as for all
    check: Callable[[Config, Sizes | None, Collection[str]], Iterator[Problem]]
    """`(configuration, sizes of the environment if known, keys with impossible values) -> problems`."""
    warn: Callable[[Config], Iterator[Problem]]
    """What will run, but perhaps not as intended; the configuration has no problems."""
    aspects: Callable[[Config, Sizes | None], tuple[Aspect, ...]] = no_aspects
    evaluated_by: Policy = "sampled"  # the policy that its runs are judged by
    simulations: Callable[[Config], int | None] = no_search  # per decision where it plays by search
    linear: tuple[str, ...] = ()  # hyperparameters without a schedule of their own that change linearly over the run
    replay_ratio: Callable[[Config], float] | None = None  # how often it trains on a transition; None without replay
    reporter: str = ""  # (Config, Env, ProbeRequest, Stored | None) -> Reporter of gradients; empty if there is none
    simulators: bool = False  # whether workers step simulators between parts of its update; others need copies of them
    own: bool = False  # whether it is user code, or that of an installed package

    @property
    def replays(self) -> bool:
        """Whether it stores transitions in a replay buffer."""
        return self.replay_ratio is not None


def find_algorithm(name: str) -> AlgorithmEntry:
    """Return the entry of an algorithm: built in, or one with the defaults of own algorithms, which need not exist."""
    if name in ALGORITHMS:
        entry: AlgorithmEntry = imported(f"hmx.algos.{name}.entry:ENTRY")
        return entry
    own: AlgorithmEntry = imported("hmx.algos.own_entry:ENTRY")
    return own._replace(name=name)


def built_in() -> tuple[AlgorithmEntry, ...]:
    """Return the entries of all algorithms of hmx."""
    return tuple(find_algorithm(name) for name in ALGORITHMS)


def hyperparameters(cfg: Config, done: float) -> dict[str, float]:
    """Return every scheduled hyperparameter that the algorithm reads, where the share `done` of the run is.

    The value clip, later starts, the penalty of a reference policy and the exponent of the importance weights are
    absent where they are off.
    """
    values: dict[str, float] = {}
    for name in find_algorithm(cfg.algo.name).schedules:
        keys = SCHEDULED[name]
        start = get(cfg, keys.start)
        if name in ABSENT_AT_0 and not start:
            continue
        warmup = cfg.algo.lr_warmup if name == "learning_rate" else 0.0
        end, rate = start * get(cfg, keys.end), cfg.algo.schedule_rate
        values[name] = value(get(cfg, keys.schedule), start, end, done, rate, warmup)
    if cfg.ppo.prio_alpha:
        values["prio_beta"] = prio_beta(cfg.ppo.prio_beta0, cfg.ppo.prio_alpha, done)
    return values
