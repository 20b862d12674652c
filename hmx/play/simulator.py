"""Step a game of HackMatrix frame by frame: to watch an agent, and to play."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hmx.config.schema import EnvConfig, RewardWeights
from hmx.envs.belief import Believed
from hmx.envs.hackmatrix.env import HackMatrixState
from hmx.envs.hackmatrix.observation import observed, packed
from hmx.envs.hackmatrix.rewards import reward_terms
from hmx.envs.hackmatrix.rules import ACTION_NAMES, Events, Rules, State, reset, step
from hmx.envs.hackmatrix.rules.mask import legal_actions
from hmx.envs.hackmatrix.rules.play import legal_word_of
from hmx.envs.hackmatrix.rules.position import Position
from hmx.envs.hackmatrix.rules.scenario import from_dict, to_dict
from hmx.play.frames import Frame, FramePolicy
from hmx.runs.lowered import LoweredPrograms
from hmx.types import Array, Key


class _Functions(NamedTuple):
    reset: Callable[[Key], State]
    look: Callable[[State, Array], tuple[HackMatrixState, Array, Array]]
    step: Callable[[State, Array, Key], tuple[State, Events, dict[str, Array]]]


class Simulator:
    """Simulate one game: `act` takes a step, and `frame` describes the current position.

    Args:
        env: the rules' options, the kind of observation and the step limit.
        weights: weights of the reward terms.
        seed: seed of the games; the same seed and actions give the same frames.
        position: the first position of every game, as a scenario; None generates one.
        policy: computes probabilities, a value and a choice at every position; None for no policy.
        programs: stored ones of the configuration; None compiles all.

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
        programs: LoweredPrograms | None = None,
    ) -> None:
        rules = Rules(undo_depth=env.undo_depth, name=env.rules)
        self.env, self.seed, self.position = env, seed, position
        self.actions: list[int] = []  # of the current game
        self._first = None if position is None else from_dict(position, rules)
        self._run = _compiled(env, weights, rules)
        if programs is not None:
            stored = {name: programs.reuse(name, jitted) for name, jitted in self._run._asdict().items()}
            self._run = _Functions(**stored)
        self._state: State
        self._max_steps = env.max_steps
        self._policy = policy
        self._carry = policy.carry if policy else ()
        self._imagined: HackMatrixState | None = None  # what the player imagines, for a search that sees no more
        self._key = jax.random.key(seed)
        self.choice: int | None = None  # the current choice of the policy
        self.frame = self._open(0)
        # Compile the step now, so that the first move does not wait for it.
        spare = jax.random.fold_in(self._key, 2**32 - 1)
        jax.block_until_ready(self._run.step(self._state, jnp.zeros(1, jnp.int32), spare[None]))

    def new(self, episode: int | None = None) -> Frame:
        """Start an episode by its number; by default the next one."""
        self.frame = self._open(self.frame.episode + 1 if episode is None else episode)
        return self.frame

    def act(self, action: int) -> Frame:
        """Take a legal action; any other is a ValueError."""
        before = self.frame
        if before.outcome or action not in before.legal:
            raise ValueError(f"{ACTION_NAMES[action]} cannot be taken now")
        self.actions.append(action)
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

    def seen(self) -> tuple[HackMatrixState, Array, Array]:
        """Return the state, the observation `[1, 1, ...]` and the legal actions `[1, 1, actions]`."""
        return self._run.look(self._state, jnp.array([self.frame.step], jnp.int32))

    def _open(self, episode: int) -> Frame:
        self.actions = []
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

    def _ask(self, frame: Frame, state: Any, obs: Array, mask: Array) -> Frame:
        assert self._policy is not None
        _, _, k_act = self._keys(frame.episode, frame.step)
        fresh = jnp.array([frame.step == 0])
        if self._policy.imagine is not None:
            before = state if frame.step == 0 else self._imagined
            self._imagined = self._policy.imagine(before, jnp.array([[frame.action or 0]]), state, ~fresh, k_act[None])
            state = Believed(state, self._imagined)
        decision, self._carry = self._policy.decide(state, self._carry, obs, mask, fresh, k_act)
        decision = jax.device_get(decision)
        self.choice = int(decision.action[0, 0])
        value = float(decision.value[0, 0])
        return dataclasses.replace(
            frame,
            probs=tuple(float(share) for share in decision.probs[0, 0]),
            value=value if np.isfinite(value) else None,
        )


def _compiled(env: EnvConfig, weights: RewardWeights, rules: Rules) -> _Functions:
    @jax.jit
    def look(state: State, steps: Array) -> tuple[HackMatrixState, Array, Array]:
        obs = observed(packed(state, env.obs), env.obs)
        word = legal_word_of(state)
        return HackMatrixState(state, steps, word), obs, legal_actions(word).T[:, None]

    @jax.jit
    def advance(state: State, action: Array, keys: Key) -> tuple[State, Events, dict[str, Array]]:
        after, events = step(state, action, keys, rules)
        return after, events, reward_terms(events, after, weights)

    return _Functions(jax.jit(lambda keys: reset(keys, rules)), look, advance)
