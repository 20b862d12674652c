"""The checks of `hmx check-env` on a simulator; they run in a worker, on two instances of it."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from hmx.errors import shortened
from hmx.simulators.answers import OBSERVATIONS, Broken
from hmx.simulators.branching import reseed
from hmx.simulators.episode import CHECKING, Simulation, episode_seed

CHECKS: Mapping[str, tuple[str, str]] = MappingProxyType({
    "spaces": ("two instances have the same spaces", "make every instance with the same spaces"),
    "interface": (
        "reset and step return what Gymnasium's interface says",
        "return (observation, info) from reset, and (observation, reward, terminated, truncated, info) from step: one "
        "number as reward, and bools as flags",
    ),
    "masks": (
        "masks of actions are truth values, and allow one",
        "return info['action_mask'] with one bool for each action, true where it is legal",
    ),
    OBSERVATIONS: (
        "observations lie in their space",
        "make observation_space describe the observations (shape, parts, type, limits), or clip observations",
    ),
    "finite": ("observations and rewards are finite", "find the division by zero or the overflow"),
    "determinism": (
        "the same seed and actions give the same observations and rewards",
        "draw random numbers from self.np_random, which reset(seed=...) seeds; without this, a resumed run starts "
        "new episodes",
    ),
    "resets": (
        "a reset clears what the episode before changed",
        "clear it in reset; in place of wrappers with running statistics (NormalizeObservation, NormalizeReward), set "
        "ppo.obs_norm=network, and ppo.value_target=return_norm or ppo.reward_scale",
    ),
    "instances": ("instances share no state", "keep everything that changes in the instance, not in a class or module"),
    "ends": (
        "a step after the end of an episode starts no new one",
        "report the end until reset is called (write steps >= limit, not steps == limit), and leave resets to hmx",
    ),
    "reset": ("a reset takes less time than an episode", "do once in __init__ what does not depend on the seed"),
    "state": (
        "set_state brings back what get_state returned",
        "include everything that changes, also the random generator: self.np_random.bit_generator.state",
    ),
    "copies": (
        "the next step of a copied state does not depend on the episode before",
        "include what reset draws in get_state, and draw random numbers from self.np_random, which hmx seeds",
    ),
    "output": ("nothing is printed", "remove the prints; hmx hides them in training"),
})  # fmt: skip
"""The rule of each check, and how to fulfil it, in the order of the report."""


_SLOW = 5e-3  # seconds; a reset that is faster is not worth a change


class PlayFacts(NamedTuple):
    """What a random play showed of a simulator."""

    terminated: int  # episodes
    truncated: int
    steps_per_sec: float  # without resets
    reset_seconds: float  # median


class SimulatorChecks(NamedTuple):
    """The findings of all checks, by name of the check."""

    problems: dict[str, str]
    skipped: dict[str, str]  # and the reason
    play: PlayFacts | None = None  # None if the simulator could not be played


def findings_from(answer: Mapping[str, Any]) -> SimulatorChecks:
    """Return findings from their JSON object."""
    played = answer["play"]
    return SimulatorChecks(answer["problems"], answer["skipped"], None if played is None else PlayFacts(*played))


class _Play:
    """A random play in an instance: what was done, what was seen after each step, and problems found on the way."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.actions: list[np.ndarray] = []
        self.digests: list[int] = []  # of the episode so far, after each step
        self.ended: list[bool] = []
        self.problems: dict[str, str] = {}

    def begin(self, episode: Simulation, number: int) -> np.ndarray:
        """Start an episode of the play."""
        return episode.begin(episode_seed(self.seed, CHECKING, 0, number))

    def run(self, episode: Simulation, steps: int) -> PlayFacts:
        """Play at random for a number of steps."""
        random, number = np.random.default_rng(self.seed), 0
        stepping: list[float] = []
        resets: list[float] = []
        ends = [0, 0]
        for t in range(steps):
            if t == 0 or self.ended[-1]:
                start = time.perf_counter()
                self._look(episode, self.begin(episode, number), 0.0, "a reset")
                resets.append(time.perf_counter() - start)
                number += 1
            self.actions.append(episode.random_action(random))
            start = time.perf_counter()
            obs, reward, terminated, truncated = episode.step(self.actions[-1])
            stepping.append(time.perf_counter() - start)
            self._look(episode, obs, reward, f"step {episode.steps} of episode {number - 1}")
            self.digests.append(episode.digest)
            self.ended.append(terminated or truncated)
            ends[0] += terminated
            ends[1] += truncated
        rate = 1.0 / max(float(np.median(stepping)), 1e-9)
        return PlayFacts(ends[0], ends[1], rate, float(np.median(resets)))

    def _look(self, episode: Simulation, obs: np.ndarray, reward: float, where: str) -> None:
        space = episode.observations
        if not np.isfinite(obs).all():
            self.problems.setdefault("finite", f"an observation is not finite at {where}")
        elif not ((obs >= space.low) & (obs <= space.high)).all():
            self.problems.setdefault(OBSERVATIONS, f"an observation lies outside its space at {where}")
        if not np.isfinite(reward):
            self.problems.setdefault("finite", f"the reward is {reward} at {where}")


def run_checks(instances: list[Simulation], seed: int, steps: int) -> SimulatorChecks:
    """Play at random and check what `CHECKS` lists, apart from `output`.

    Args:
        instances: two of the same simulator; that they have the same spaces is known.
        seed: of the play.
        steps: played, in each of several plays.
    """
    one, other = instances
    problems: dict[str, str] = {}
    skipped: dict[str, str] = {}
    play = _Play(seed)
    try:
        facts = play.run(one, steps)
    except Broken as problem:
        return SimulatorChecks({**play.problems, problem.check: shortened(str(problem), 1000)}, {})
    problems |= play.problems
    if not one.masks:
        skipped["masks"] = "it gives no mask of actions"
    differing = _differing(one, play)
    wrappers = f": its wrappers {' and '.join(one.facts.statistics)} keep statistics" if one.facts.statistics else ""
    if differing is not None and _differing(other, play) is None:
        problems["resets"] = f"step {differing + 1} differs when it is repeated after other episodes{wrappers}"
        skipped["determinism"] = skipped["instances"] = "resets do not clear what earlier episodes changed"
    elif differing is None:
        shared = _differing(one, play, beside=other)
        if shared is not None:
            problems["instances"] = f"step {shared + 1} differs while another instance plays beside it"
    else:
        skipped["resets"] = "the simulator is not deterministic"
        problems["determinism"] = f"step {differing + 1} differs when it is repeated"
        skipped["instances"] = "the simulator is not deterministic"
    if not any(play.ended):
        skipped["ends"] = f"no episode ended in {steps} steps"
    elif (after := _after_end(one, play)) is not None:
        problems["ends"] = after
    episode_seconds = steps / facts.steps_per_sec / max(sum(play.ended), 1)
    if sum(play.ended) > 1 and facts.reset_seconds > max(episode_seconds, _SLOW):
        times = f"{1000 * facts.reset_seconds:.3g} ms, and the steps of an episode {1000 * episode_seconds:.3g} ms"
        problems["reset"] = f"a reset takes {times}"
    if not one.facts.has_state:
        skipped["state"] = "it has no get_state and set_state; a resumed run replays episodes instead"
    elif (lost := _state_problem(one, play)) is not None:
        problems["state"] = lost
    if not one.facts.has_state or "state" in problems:
        skipped["copies"] = "it has no state that can be set"
    elif _copies_differ(one, play):
        problems["copies"] = "a step from the first state differs after set_state in another episode"
    elif not reseed(one.env, np.zeros(2, np.uint32)):
        skipped["copies"] = "it has no np_random, so all copies of a state have the same future, which a search knows"
    return SimulatorChecks(problems, skipped, facts)


def _differing(episode: Simulation, play: _Play, beside: Simulation | None = None) -> int | None:
    """Take the actions of a play again, while another instance plays; return the first step that differs."""
    number, others = 0, 0
    for t, row in enumerate(play.actions):
        if t == 0 or play.ended[t - 1]:
            play.begin(episode, number)
            number += 1
        if beside is not None:
            others = _disturb(beside, play.actions[-1 - t], play.seed, others)
        episode.step(row)
        if episode.digest != play.digests[t]:
            return t
    return None


def _disturb(other: Simulation, row: np.ndarray, seed: int, number: int) -> int:
    """Step another instance in episodes of its own; return the number of its next episode."""
    if number == 0:
        other.begin(episode_seed(seed, CHECKING, 1, number))
        number += 1
    _, _, terminated, truncated = other.step(row)
    if terminated or truncated:
        other.begin(episode_seed(seed, CHECKING, 1, number))
        number += 1
    return number


def _after_end(episode: Simulation, play: _Play) -> str | None:
    """Step once more after the first end; an error there is as good as an end."""
    first = play.ended.index(True)
    play.begin(episode, 0)
    for row in play.actions[: first + 1]:
        episode.step(row)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Gymnasium's environments warn of such a step
            _, _, terminated, truncated = episode.step(play.actions[first])
    except Exception:  # any error of the simulator
        return None
    return None if terminated or truncated else "the step after the end of an episode continues with a new one"


def _copies_differ(episode: Simulation, play: _Play) -> bool:
    """Return whether a step from the first state, with one seed for the step, differs between two episodes."""
    play.begin(episode, 0)
    state = episode.state() or b""
    digests = []
    for number in range(2):
        play.begin(episode, number)
        episode.branch(state, 0)
        reseed(episode.env, np.zeros(2, np.uint32))
        episode.step(play.actions[0])
        digests.append(episode.digest)
    return digests[0] != digests[1]


def _state_problem(episode: Simulation, play: _Play) -> str | None:
    """Return to the middle of the first episode by its state, and compare what follows with what followed before."""
    length = play.ended.index(True) + 1 if any(play.ended) else len(play.actions)
    middle = length // 2
    first, other = (episode_seed(play.seed, CHECKING, 0, number) for number in range(2))
    episode.replay(first, play.actions[:middle])
    state, digest = episode.state() or b"", episode.digest
    episode.replay(other, play.actions[:1])  # somewhere else
    episode.restore(first, state, middle, digest)
    for t in range(middle, length):
        episode.step(play.actions[t])
        if episode.digest != play.digests[t]:
            return f"after set_state at step {middle}, step {t + 1} differs from before"
    return None
