"""Frames: the positions of an episode, each with the step that led to it and what a policy would do next."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from hmx.algos.evaluate import EvalPolicy
from hmx.algos.types import Decision
from hmx.config.coerce import show
from hmx.envs.hackmatrix.rules import ACTION_NAMES
from hmx.envs.hackmatrix.rules.position import Position
from hmx.records.plain import JsonValue, plain
from hmx.types import Array, Key

SCHEMA = 1


@dataclasses.dataclass(frozen=True)
class Frame:
    """A position and the step that led to it.

    Other environments than HackMatrix have a `picture` instead of a position, and `taken` instead of an action.
    """

    step: int  # taken in this episode, 0 for its first position
    episode: int  # counts from 0
    position: Position  # the fields of a scenario, as `hmx.envs.hackmatrix.rules.scenario.to_dict` gives them
    legal: tuple[int, ...]  # the actions that may be taken now; none with several agents
    action: int | None = None  # the action that led here; None at the start of an episode
    probs: tuple[float, ...] | None = None  # of every action now, by index; None without a policy
    value: float | None = None  # expected return from here, in reward units; None without a policy
    reward: float | None = None  # of the step that led here
    terms: Mapping[str, float] = dataclasses.field(default_factory=dict)  # the parts of `reward`
    episode_return: float = 0.0  # sum of the rewards so far
    outcome: str = ""  # at the end: `won`, `died`, `stuck`, `stopped`, `terminated` or `truncated`
    names: tuple[str, ...] = ACTION_NAMES
    picture: str = ""  # what `render` shows
    taken: tuple[JsonValue, ...] = ()  # the action of every agent, a name or numbers
    image: np.ndarray[Any, Any] | None = None  # what a simulator draws, uint8 [height, width, 3]; for a GIF

    @property
    def action_name(self) -> str:
        """Return the action that led here as text; empty at the start of an episode."""
        if self.taken:
            return ", ".join(show(list(one) if isinstance(one, list) else one) for one in self.taken)
        return "" if self.action is None else self.names[self.action]

    def to_json(self) -> dict[str, JsonValue]:
        """Return a JSON object with stable keys."""
        return {
            "schema": SCHEMA,
            "episode": self.episode,
            "step": self.step,
            "action": self._action(),
            "reward": self.reward,
            "terms": plain(self.terms),
            "return": self.episode_return,
            "outcome": self.outcome or None,
            "legal": [self.names[index] for index in self.legal],
            "probabilities": None
            if self.probs is None
            else {self.names[index]: self.probs[index] for index in self.legal},
            "value": self.value,
            **({"picture": self.picture} if self.picture else {"position": plain(self.position)}),
        }

    def _action(self) -> JsonValue:
        if self.taken:
            return self.taken[0] if len(self.taken) == 1 else list(self.taken)
        return None if self.action is None else self.names[self.action]


class FramePolicy(NamedTuple):
    """How actions are chosen for one environment, jitted.

    `decide(env state, carry, obs [1, 1, ...], legal [1, 1, actions], reset [1], key) -> (Decision, carry)`; `carry` is
    the initial RNN carry. A search that sees what the player sees has `imagine`, see `hmx.envs.belief`, of one
    environment; it starts from its result.
    """

    decide: Callable[[Any, Any, Array, Array, Array, Key], tuple[Decision, Any]]
    carry: Any = ()
    imagine: Callable[..., Any] | None = None


def frame_policy(policy: EvalPolicy) -> FramePolicy:
    """Return the frames' form of a policy without a trained agent."""
    return FramePolicy(jax.jit(partial(policy.act, None)))
