"""Evaluate policies in a simulator: the part of `hmx evaluate` that a compiled program does for environments in JAX."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from hmx.algos.evaluate import STEP_LIMIT, Episodes, random_actions
from hmx.algos.types import Algorithm, Carry, Decision, TrainState
from hmx.config.schema import EnvConfig
from hmx.envs.protocol import EnvSpec
from hmx.jobs.evaluation import RANDOM, Progress
from hmx.runs.hosted_play import Decide, HostedStep, open_pool, play_steps
from hmx.types import Array, Key

_REPORT = 0.5  # seconds between two reports of progress


def no_carry(shape: tuple[int, int]) -> None:
    """Return the RNN carry of a policy without one."""


def decide_in(spec: EnvSpec, algorithm: Algorithm | None, state: TrainState | None, name: str) -> Decide:
    """Return the compiled decisions of a policy: `random`, or `sampled` or `greedy` of an algorithm."""
    if name == RANDOM or algorithm is None:
        return jax.jit(partial(_at_random, spec))
    return partial(_decide, jax.jit(algorithm.act, static_argnums=6), state, name == "greedy")


def _decide(act: Any, state: TrainState | None, greedy: bool, carry: Any, *seen: Any) -> tuple[Decision, Any]:
    decided: tuple[Decision, Any] = act(state, carry, *seen, greedy)
    return decided


def _at_random(spec: EnvSpec, carry: Any, obs: Array, legal: Array, reset: Array, key: Key) -> tuple[Decision, Any]:
    nothing = jax.numpy.zeros(legal.shape[:-1])
    return Decision(random_actions(key, legal, spec.action_dim, spec.action_parts), nothing, legal, nothing), carry


class HostedEvaluation(NamedTuple):
    """An evaluation of `episodes` whole episodes in up to `num_envs` environments of a simulator.

    Every environment plays a fixed number of them, since the first to end would favour short ones. All policies start
    from the same positions.
    """

    spec: EnvSpec
    env: EnvConfig
    seed: int
    key: Key
    num_envs: int
    episodes: int

    def steps(self, decide: Decide, carry_of: Callable[[tuple[int, int]], Carry]) -> Iterator[tuple[HostedStep, Any]]:
        """Play until all episodes have ended, or at a limit of steps.

        Yields:
            Each step, and the number of the episode that each environment plays, `[E]`; `episodes` or more for none.
        """
        num_envs = min(self.num_envs, self.episodes)
        quota = self.episodes // num_envs + (np.arange(num_envs) < self.episodes % num_envs)
        limit = int(quota.max()) * (self.spec.max_steps or STEP_LIMIT)
        left = self.episodes
        with open_pool(self.spec, self.env, num_envs, self.seed) as pool:
            steps = play_steps(pool, decide, carry_of((num_envs, 1)), self.key)
            for step in itertools.islice(steps, limit):
                entry = np.where(step.number < quota, step.number * num_envs + np.arange(num_envs), self.episodes)
                yield step, entry
                left -= int((entry[step.terminated | step.truncated] < self.episodes).sum())
                if not left:
                    break

    def play(
        self, decide: Decide, carry_of: Callable[[tuple[int, int]], Carry], progress: Progress, label: str
    ) -> Episodes:
        """Play all episodes, and return their totals."""
        total, length = np.zeros(self.episodes + 1, np.float32), np.zeros(self.episodes + 1, np.int32)
        finished = np.zeros(self.episodes + 1, bool)  # the last entry of each is of no episode
        begun, shown = time.monotonic(), 0.0
        progress(f"starting {min(self.num_envs, self.episodes)} simulators", 0, 0)
        for step, entry in self.steps(decide, carry_of):
            total[entry] += step.reward
            length[entry] += 1
            finished[entry] |= step.terminated | step.truncated
            now = time.monotonic()
            if now - shown > _REPORT:
                rate = float(length[:-1].sum()) / max(now - begun, 1e-9)
                progress(label, int(finished[:-1].sum()), self.episodes, rate)
                shown = now
        totals: dict[str, Any] = {"total": total[:-1], "length": length[:-1], "finished": finished[:-1]}
        return Episodes(**totals, terms={"reward": totals["total"]}, info={})
