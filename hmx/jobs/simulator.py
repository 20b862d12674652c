"""Step a game of HackMatrix, or one copy of any environment, frame by frame: to watch an agent, and to play."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from hmx.algos.evaluate import random_actions
from hmx.algos.types import Decision
from hmx.config.coerce import show
from hmx.config.schema import EnvConfig, RewardWeights
from hmx.envs.hackmatrix.env import HackMatrixState
from hmx.envs.hackmatrix.observation import decode, packed
from hmx.envs.hackmatrix.rewards import reward_terms
from hmx.envs.hackmatrix.rules import ACTION_NAMES, Events, Rules, State, reset, step
from hmx.envs.hackmatrix.rules.mask import legal_actions
from hmx.envs.hackmatrix.rules.play import legal_word_of
from hmx.envs.hackmatrix.rules.position import Position
from hmx.envs.hackmatrix.rules.scenario import from_dict, to_dict
from hmx.envs.protocol import Env, EnvState
from hmx.records.plain import JsonValue, plain
from hmx.types import Array, Key, Timestep

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
    the initial RNN carry.
    """

    decide: Callable[[Any, Any, Array, Array, Array, Key], tuple[Decision, Any]]
    carry: Any = ()


class _Functions(NamedTuple):
    reset: Callable[[Key], State]
    look: Callable[[State, Array], tuple[HackMatrixState, Array, Array]]
    step: Callable[[State, Array, Key], tuple[State, Events, dict[str, Array]]]


class Simulator:
    """Simulate one game: `act` takes a step, and `frame` describes the current position.

    Args:
        env: the rules' options, the kind of observation and the step limit.
        weights: of the reward terms.
        seed: of the games; the same seed and actions give the same frames.
        position: the first position of every game, as a scenario; None generates one.
        policy: computes probabilities, a value and a choice at every position; None for no policy.

    Raises:
        HmxError: the scenario is not possible.
    """

    def __init__(
        self,
        env: EnvConfig,
        weights: RewardWeights,
        *,
        seed: int,
        position: Mapping[str, object] | None = None,
        policy: FramePolicy | None = None,
    ) -> None:
        rules = Rules(undo_depth=env.undo_depth, loopholes=env.loopholes)
        self._first = None if position is None else from_dict(position, rules)
        self._run = _compiled(env, weights, rules)
        self._state: State
        self._max_steps = env.max_steps
        self._policy = policy
        self._carry = policy.carry if policy else ()
        self._key = jax.random.key(seed)
        self.choice: int | None = None  # the current choice of the policy
        self.frame = self._open(0)
        # Compile the step now, so that the first move does not wait for it.
        spare = jax.random.fold_in(self._key, 2**32 - 1)
        jax.block_until_ready(self._run.step(self._state, jnp.zeros(1, jnp.int32), spare[None]))

    def new(self) -> Frame:
        """Start the next episode."""
        self.frame = self._open(self.frame.episode + 1)
        return self.frame

    def act(self, action: int) -> Frame:
        """Take a legal action; any other is a ValueError."""
        before = self.frame
        if before.outcome or action not in before.legal:
            raise ValueError(f"{ACTION_NAMES[action]} cannot be taken now")
        _, k_step, _ = self._keys(before.episode, before.step)
        self._state, events, terms = self._run.step(self._state, jnp.asarray([action], jnp.int32), k_step[None])
        # Six decimals and no negative zeros, because these numbers are shown.
        parts = {name: round(float(value[0]), 6) + 0.0 for name, value in jax.device_get(terms).items()}
        reward = round(sum(parts.values()), 6)
        self.frame = self._see(
            step=before.step + 1,
            episode=before.episode,
            action=action,
            reward=reward,
            terms=parts,
            episode_return=round(before.episode_return + reward, 6),
            outcome="won" if bool(events.victory[0]) else "",
        )
        return self.frame

    def _open(self, episode: int) -> Frame:
        k_reset, _, _ = self._keys(episode, 0)
        if self._first is None:
            self._state = self._run.reset(k_reset[None])
        else:
            self._state = jax.tree.map(lambda leaf: leaf[..., None], self._first)
        return self._see(step=0, episode=episode)

    def _keys(self, episode: int, step_number: int) -> tuple[Key, Key, Key]:
        key = jax.random.fold_in(jax.random.fold_in(self._key, episode), step_number)
        k_reset, k_step, k_act = jax.random.split(key, 3)
        return k_reset, k_step, k_act

    def _see(self, *, step: int, episode: int, outcome: str = "", **came_by: Any) -> Frame:
        position = to_dict(jax.tree.map(lambda leaf: np.asarray(leaf)[..., 0], self._state))
        state, obs, mask = self._run.look(self._state, jnp.array([step], jnp.int32))
        possible = tuple(int(index) for index in np.flatnonzero(np.asarray(mask)[0, 0]))
        if not outcome:
            outcome = self._ending(position, possible, step)
        if outcome:
            possible = ()
        frame = Frame(step=step, episode=episode, position=position, legal=possible, outcome=outcome, **came_by)
        self.choice = None
        return frame if outcome or self._policy is None else self._ask(frame, state, obs, mask)

    def _ending(self, position: Position, possible: tuple[int, ...], step_number: int) -> str:
        if position["player"]["hp"] == 0:
            return "died"
        if not possible:
            return "stuck"
        return "stopped" if self._max_steps and step_number >= self._max_steps else ""

    def _ask(self, frame: Frame, state: HackMatrixState, obs: Array, mask: Array) -> Frame:
        assert self._policy is not None
        _, _, k_act = self._keys(frame.episode, frame.step)
        fresh = jnp.array([frame.step == 0])
        decision, self._carry = self._policy.decide(state, self._carry, obs, mask, fresh, k_act)
        decision = jax.device_get(decision)
        self.choice = int(decision.action[0, 0])
        value = float(decision.value[0, 0])
        return dataclasses.replace(
            frame,
            probs=tuple(float(share) for share in decision.probs[0, 0]),
            value=value if np.isfinite(value) else None,
        )


def decide_at_random(
    env_state: Any, carry: Any, obs: Array, mask: Array, reset: Array, key: Key, action_dim: int = 0
) -> tuple[Decision, Any]:
    """Draw a legal action uniformly, or a continuous one of `action_dim` numbers; the value is not a number."""
    del env_state, obs, reset
    unknown, probs = jnp.full(mask.shape[:-1], jnp.nan), mask / mask.sum(-1, keepdims=True)
    return Decision(random_actions(key, mask, action_dim), unknown, probs, unknown), carry


def _compiled(env: EnvConfig, weights: RewardWeights, rules: Rules) -> _Functions:
    @jax.jit
    def look(state: State, steps: Array) -> tuple[HackMatrixState, Array, Array]:
        words = packed(state).T[:, None]
        obs = decode(words) if env.obs == "flat" else words
        word = legal_word_of(state)
        return HackMatrixState(state, steps, word), obs, legal_actions(word).T[:, None]

    @jax.jit
    def advance(state: State, action: Array, keys: Key) -> tuple[State, Events, dict[str, Array]]:
        after, events = step(state, action, keys, rules)
        return after, events, reward_terms(events, after, weights)

    return _Functions(jax.jit(lambda keys: reset(keys, rules)), look, advance)


class Spectator:
    """Play one environment: `act` takes a step, and `frame` shows the state with the choice of the policy.

    Args:
        env: any environment; without `render`, its observation is shown.
        seed: of the episodes; the same seed and actions give the same frames.
        policy: chooses actions, for `env.spec.num_agents` agents.
    """

    def __init__(self, env: Env, *, seed: int, policy: FramePolicy) -> None:
        self._spec, self._policy, self._carry = env.spec, policy, policy.carry
        self._reset, self._step = jax.jit(env.reset), jax.jit(_step_both(env))
        self._key, self._state = jax.random.key(seed), cast(EnvState, None)
        self.choice: Array | None = None  # [1, A] or [1, A, D]: next action of the policy; None if an episode ended
        self.frame = self._open(0)

    def new(self) -> Frame:
        """Start the next episode."""
        self.frame = self._open(self.frame.episode + 1)
        return self.frame

    def act(self, action: Array) -> Frame:
        """Take a step; `action` is `[1, A]` or `[1, A, D]`."""
        before, key = self.frame, self._keys(self.frame.episode, self.frame.step)[0]
        self._state, last, timestep = jax.device_get(self._step(self._state, action, key[None]))
        terms = {name: round(float(value[0]), 6) + 0.0 for name, value in timestep.terms.items()}
        reward = round(float(timestep.reward.sum()), 6) + 0.0
        outcome = "terminated" if timestep.terminated[0] else "truncated" if timestep.truncated[0] else ""
        self.frame = self._see(
            Frame(
                step=before.step + 1,
                episode=before.episode,
                position={},  # type: ignore[typeddict-item]  # of HackMatrix only
                legal=(),
                reward=reward,
                terms=terms,
                episode_return=round(before.episode_return + reward, 6),
                outcome=outcome,
                taken=tuple(self._named(one) for one in np.asarray(action)[0]),
            ),
            last if outcome else self._state,
            timestep,
        )
        return self.frame

    def _open(self, episode: int) -> Frame:
        self._state, timestep = jax.device_get(self._reset(self._keys(episode, 2**31 - 1)[0][None]))
        empty = Frame(step=0, episode=episode, position={}, legal=())  # type: ignore[typeddict-item]
        return self._see(empty, self._state, timestep)

    def _keys(self, episode: int, step: int) -> tuple[Key, Key]:
        k_step, k_act = jax.random.split(jax.random.fold_in(jax.random.fold_in(self._key, episode), step))
        return k_step, k_act

    def _named(self, action: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> JsonValue:
        if self._spec.action_dim:
            return [round(float(x), 3) for x in action]
        return self._spec.action_names[int(action)]

    def _see(self, frame: Frame, state: EnvState, timestep: Timestep) -> Frame:
        """Return the frame with a picture of the state, and choose the next action."""
        spec = self._spec
        picture = spec.render(state) if spec.render is not None else _numbers(timestep.final_obs[0])
        frame = dataclasses.replace(frame, names=spec.action_names, picture=picture or " ")
        self.choice = None
        if frame.outcome:
            return frame
        key, reset = self._keys(frame.episode, frame.step)[1], jnp.array([frame.step == 0])
        decision, self._carry = self._policy.decide(state, self._carry, timestep.obs, timestep.legal, reset, key)
        self.choice, value = decision.action, float(decision.value.sum())
        frame = dataclasses.replace(frame, value=value if np.isfinite(value) else None)
        if spec.num_agents > 1 or spec.action_dim:
            return frame
        legal = tuple(int(index) for index in np.flatnonzero(timestep.legal[0, 0]))
        return dataclasses.replace(frame, legal=legal, probs=tuple(float(p) for p in decision.probs[0, 0]))


def _step_both(env: Env) -> Callable[[EnvState, Array, Key], tuple[EnvState, EnvState, Timestep]]:
    """Return a step that also gives the last state of an episode, which the reset replaces, if known."""

    def step(state: EnvState, action: Array, keys: Key) -> tuple[EnvState, EnvState, Timestep]:
        after, timestep = env.step(state, action, jax.random.clone(keys))  # the same keys twice, on purpose
        return after, state if env.spec.moved is None else env.spec.moved(state, action, keys), timestep

    return step


def _numbers(obs: Array) -> str:
    """Return the observation of every agent as text, eight numbers a line."""
    rows = [[f"{float(x):8.3g}" for x in np.ravel(agent)] for agent in np.asarray(obs)]
    return "\n".join("".join(row[i : i + 8]) for row in rows for i in range(0, len(row), 8))
