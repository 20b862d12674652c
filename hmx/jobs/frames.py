"""One frame of a running game: data for drawing and for `--json`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from hmx.config.coerce import show
from hmx.game.position import Position
from hmx.game.tables import ACTION_NAMES
from hmx.records.plain import JsonValue, plain

SCHEMA = 1


@dataclasses.dataclass(frozen=True)
class Frame:
    """A position and the step that led to it.

    Attributes:
        step: steps taken in this episode, 0 for its first position.
        episode: counts from 0.
        position: the fields of a scenario, as `hmx.game.scenario.to_dict` gives them.
        legal: the actions that may be taken now.
        action: what led here; None at the start of an episode.
        probs: probability of every action now, by index; None without a policy.
        value: expected return from here, in reward units; None without a policy.
        reward: reward of the step that led here.
        terms: the parts of `reward`.
        episode_return: sum of the rewards so far.
        outcome: empty until the episode ends, then `won`, `died`, `stuck`, `stopped`, `terminated` or `truncated`.
        names: of the actions.
        picture: of other environments than HackMatrix, whose `position` is empty: what their `render` shows.
        taken: in them the action of every agent, a name or numbers; `legal` and `probs` are those of a single agent.
    """

    step: int
    episode: int
    position: Position
    legal: tuple[int, ...]
    action: int | None = None
    probs: tuple[float, ...] | None = None
    value: float | None = None
    reward: float | None = None
    terms: Mapping[str, float] = dataclasses.field(default_factory=dict)
    episode_return: float = 0.0
    outcome: str = ""
    names: tuple[str, ...] = ACTION_NAMES
    picture: str = ""
    taken: tuple[JsonValue, ...] = ()

    @property
    def action_name(self) -> str:
        """Return what led here as text; empty at the start of an episode."""
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
