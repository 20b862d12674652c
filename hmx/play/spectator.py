"""Step one copy of any environment frame by frame, to watch an agent."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from hmx.envs.protocol import Env, EnvState, play_and_renew
from hmx.play.frames import Frame, FramePolicy
from hmx.records.plain import JsonValue
from hmx.runs.lowered import LoweredPrograms
from hmx.types import Array, Key, Timestep

Image = np.ndarray[Any, Any]


class Spectator:
    """Play one environment: `act` takes a step, and `frame` shows the state with the choice of the policy.

    Args:
        env: any environment, in JAX or on the host; without `render`, its observation is shown.
        seed: seed of the episodes; the same seed and actions give the same frames.
        policy: chooses actions, for `env.spec.num_agents` agents.
        programs: stored ones of the configuration; None compiles all.
        draw: returns a picture of the current state, uint8 `[height, width, 3]`; None for no pictures.
    """

    def __init__(
        self,
        env: Env,
        *,
        seed: int,
        policy: FramePolicy,
        programs: LoweredPrograms | None = None,
        draw: Callable[[], Image] | None = None,
    ) -> None:
        self._spec, self._policy, self._carry = env.spec, policy, policy.carry
        self._reset, self._step = env.stepper.program(env.reset), env.stepper.program(partial(play_and_renew, env))
        if programs is not None:
            self._reset, self._step = programs.reuse("reset", self._reset), programs.reuse("step", self._step)
        self._draw, self._image = draw, cast("Image | None", None)
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
        if self._spec.action_parts:
            return [int(x) for x in action]
        return self._spec.action_names[int(action)]

    def _see(self, frame: Frame, state: EnvState, timestep: Timestep) -> Frame:
        """Return the frame with a picture of the state, and choose the next action."""
        spec = self._spec
        picture = spec.render(state) if spec.render is not None else _numbers(timestep.final_obs[0])
        if self._draw is not None and not frame.outcome:  # at an end the next episode has started: the one before stays
            self._image = self._draw()
        frame = dataclasses.replace(frame, names=spec.action_names, picture=picture or " ", image=self._image)
        self.choice = None
        if frame.outcome:
            return frame
        key, reset = self._keys(frame.episode, frame.step)[1], jnp.array([frame.step == 0])
        decision, self._carry = self._policy.decide(state, self._carry, timestep.obs, timestep.legal, reset, key)
        self.choice, value = decision.action, float(decision.value.sum())
        frame = dataclasses.replace(frame, value=value if np.isfinite(value) else None)
        if spec.num_agents > 1 or spec.action_dim or spec.action_parts:
            return frame
        legal = tuple(int(index) for index in np.flatnonzero(timestep.legal[0, 0]))
        return dataclasses.replace(frame, legal=legal, probs=tuple(float(p) for p in decision.probs[0, 0]))


def _numbers(obs: Array) -> str:
    """Return the observation of every agent as text, eight numbers a line."""
    rows = [[f"{float(x):8.3g}" for x in np.ravel(agent)] for agent in np.asarray(obs)]
    return "\n".join("".join(row[i : i + 8]) for row in rows for i in range(0, len(row), 8))
