"""The built-in environments for trainers written for Gymnasium; importing this needs the extra gymnax."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hmx.config.extras import needed
from hmx.config.schema import RewardWeights
from hmx.envs.export import chosen, exported, named_terms
from hmx.envs.protocol import EnvState
from hmx.types import Array, Key, Timestep

with needed("gymnax", "exporting environments"):
    import gymnasium
    from gymnasium.vector import AutoresetMode
    from gymnasium.vector.utils import batch_space

Stepped = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]


class GymnasiumVectorEnv(gymnasium.vector.VectorEnv):
    """Environments side by side, with Gymnasium's interface and numpy arrays.

    An episode that ends is followed by the first observation of the next in the same step; its last observation is
    then `infos["final_obs"][i]`, as Gymnasium's own SAME_STEP environments give it. `infos["action_masks"]`, bool
    `[num_envs, num_actions]`, and `action_masks()` give the legal actions of the current state;
    `infos["final_info"]["action_masks"]` the legal actions in truncated states. In HackMatrix an illegal action
    ends the episode, unless `illegal` says otherwise.

    After a step `infos["reward_terms"]` has the reward terms, float32 `[num_envs]`, and `infos` each of them under its
    name (`hmx.envs.export.named_terms`). Where an episode ended, they are those of its last step, as the reward is.

    Args:
        env_id: a built-in environment with one agent.
        num_envs: side by side.
        weights: weights of HackMatrix's reward.
        illegal: "as_is", or "next_legal" for policies that know no masks: an illegal action stands for the next legal
            one, counting up and wrapping around after the last.
        settings: fields of `hmx.config.schema.EnvConfig`, such as `max_steps=200`.

    Raises:
        HmxError: there is no such environment or setting.
    """

    def __init__(
        self,
        env_id: str = "hackmatrix",
        num_envs: int = 1,
        weights: RewardWeights | None = None,
        illegal: str = "as_is",
        **settings: Any,
    ) -> None:
        self.env = exported(env_id, weights, illegal, {**settings, "num_envs": num_envs})
        spec = self.env.spec
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": []}
        self.single_observation_space = gymnasium.spaces.Box(-np.inf, np.inf, spec.obs_shape, np.float32)
        self.single_action_space = (
            gymnasium.spaces.Box(-1.0, 1.0, (spec.action_dim,), np.float32)
            if spec.action_dim
            else gymnasium.spaces.Discrete(spec.num_actions)
        )
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

        def step(state: EnvState, actions: Array, legal: Array, keys: Key) -> tuple[EnvState, Timestep]:
            return self.env.step(state, chosen(self.env, illegal, actions, legal)[:, None], keys)

        self._reset, self._step = jax.jit(self.env.reset), jax.jit(step)
        self._count = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Reset all environments; the same seed gives the same episodes."""
        super().reset(seed=seed)
        self._key = jax.random.key(int(self.np_random.integers(2**31)))
        self._count = 0
        self._state, timestep = self._reset(self._next_keys())
        self._mask = np.asarray(timestep.legal[:, 0])
        return np.asarray(timestep.obs[:, 0]), self._infos(timestep)

    def step(self, actions: np.ndarray) -> Stepped:
        """Return observations, rewards, terminations, truncations and infos; the environments are the leading axis."""
        dtype = jnp.float32 if self.env.spec.action_dim else jnp.int32
        taken = jnp.asarray(np.asarray(actions), dtype)
        self._state, after = self._step(self._state, taken, self._mask, self._next_keys())
        self._mask = np.asarray(after.legal[:, 0])
        rewards = np.asarray(after.reward[:, 0], np.float64)
        ends = np.asarray(after.terminated), np.asarray(after.truncated)
        terms = jax.device_get(after.terms)
        paid = self._everywhere({**named_terms(terms), "reward_terms": self._everywhere(terms)})
        return np.asarray(after.obs[:, 0]), rewards, *ends, self._infos(after) | paid

    def action_masks(self) -> np.ndarray:
        """Return the legal actions, bool `[num_envs, num_actions]`; `[num_envs, 0]` for continuous actions."""
        return self._mask

    def _next_keys(self) -> Key:
        self._count += 1
        return jax.random.split(jax.random.fold_in(self._key, self._count), self.num_envs)

    def _everywhere(self, infos: dict[str, Any]) -> dict[str, Any]:
        """Return infos with Gymnasium's masks, which say that every environment has them."""
        return infos | {f"_{name}": np.ones(self.num_envs, bool) for name in infos}

    def _infos(self, timestep: Timestep) -> dict[str, Any]:
        infos = self._everywhere({"action_masks": self._mask})
        done = np.asarray(timestep.terminated | timestep.truncated)
        if done.any():
            last = np.asarray(timestep.final_obs[:, 0])
            shown = np.full(self.num_envs, None, object)
            for i in np.flatnonzero(done):
                shown[i] = last[i]
            legal = {"action_masks": np.asarray(timestep.final_legal[:, 0]), "_action_masks": done}
            infos |= {"final_obs": shown, "_final_obs": done, "final_info": legal, "_final_info": done}
        return infos
