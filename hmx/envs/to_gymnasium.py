"""The built-in environments for trainers written for Gymnasium; importing this needs the extra gymnasium.

`hmx.gymnasium` registers them for `gymnasium.make` and `gymnasium.make_vec`.
"""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from hmx.config.extras import needed
from hmx.config.schema import RewardWeights
from hmx.envs.export import chosen, exported, named_terms
from hmx.envs.pictures import described, picture
from hmx.envs.protocol import EnvState, play_and_renew, take
from hmx.errors import HmxError
from hmx.render.raster import lettered, raster
from hmx.types import Array, Key, Timestep

with needed("gymnasium", "exporting environments"):
    import gymnasium
    from gymnasium.vector import AutoresetMode
    from gymnasium.vector.utils import batch_space

RENDER_MODES = ["ansi", "rgb_array"]
Frame = str | np.ndarray
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
        render_mode: what `render` returns: "ansi" for text, "rgb_array" for pixels (with Pillow, extra gif), or None.
        settings: fields of `hmx.config.schema.EnvConfig`, such as `max_steps=200`.

    Raises:
        HmxError: there is no such environment, setting or render mode, or Pillow is not installed.
    """

    metadata: ClassVar[dict[str, Any]] = {
        "autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": RENDER_MODES, "render_fps": 4,
    }  # fmt: skip

    def __init__(
        self,
        env_id: str = "hackmatrix",
        num_envs: int = 1,
        weights: RewardWeights | None = None,
        illegal: str = "as_is",
        render_mode: str | None = None,
        **settings: Any,
    ) -> None:
        if render_mode not in (None, *RENDER_MODES):
            raise HmxError(f"render_mode={render_mode!r} is not a way to render", f"one of {', '.join(RENDER_MODES)}")
        if render_mode == "rgb_array":
            with needed("gif", "rendering pixels"):
                import PIL.ImageDraw  # noqa: F401
        self.render_mode = render_mode
        self.env = exported(env_id, weights, illegal, {**settings, "num_envs": num_envs})
        spec = self.env.spec
        self.num_envs = num_envs
        self.single_observation_space = gymnasium.spaces.Box(-np.inf, np.inf, spec.obs_shape, np.float32)
        self.single_action_space = (
            gymnasium.spaces.Box(-1.0, 1.0, (spec.action_dim,), np.float32)
            if spec.action_dim
            else gymnasium.spaces.Discrete(spec.num_actions)
        )
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

        def step(state: EnvState, actions: Array, legal: Array, keys: Key) -> tuple[EnvState, EnvState, Timestep]:
            taken = chosen(self.env, illegal, actions, legal)[:, None]
            if render_mode is not None:
                return play_and_renew(self.env, state, taken, keys)
            after, timestep = self.env.step(state, taken, keys)
            return after, (), timestep

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
        self._obs = np.asarray(timestep.obs[:, 0])
        return self._obs, self._infos(timestep)

    def step(self, actions: np.ndarray) -> Stepped:
        """Return observations, rewards, terminations, truncations and infos; the environments are the leading axis."""
        dtype = jnp.float32 if self.env.spec.action_dim else jnp.int32
        taken = jnp.asarray(np.asarray(actions), dtype)
        self._state, self._last, after = self._step(self._state, taken, self._mask, self._next_keys())
        self._mask = np.asarray(after.legal[:, 0])
        rewards = np.asarray(after.reward[:, 0], np.float64)
        ends = np.asarray(after.terminated), np.asarray(after.truncated)
        terms = jax.device_get(after.terms)
        paid = self._everywhere({**named_terms(terms), "reward_terms": self._everywhere(terms)})
        self._obs = np.asarray(after.obs[:, 0])
        return self._obs, rewards, *ends, self._infos(after) | paid

    def action_masks(self) -> np.ndarray:
        """Return the legal actions, bool `[num_envs, num_actions]`; `[num_envs, 0]` for continuous actions."""
        return self._mask

    def render(self) -> tuple[Frame, ...] | None:
        """Return a frame per environment: text, or pixels, uint8 `[height, width, 3]`; None without a render mode."""
        if self.render_mode is None:
            return None
        return tuple(self._frame(self._state, self._obs, i) for i in range(self.num_envs))

    def _frame(self, state: EnvState, obs: np.ndarray, i: int) -> Frame:
        spec, one = self.env.spec, jax.device_get(take(self.env.spec, state, np.array([i])))
        drawn = picture(described(spec, one, obs[i : i + 1], obs[i].size))
        if self.render_mode == "ansi":
            return drawn.text
        drawn = drawn if drawn.shapes else lettered(drawn.text)
        return np.asarray(raster(drawn.shapes, drawn.width, drawn.height))

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


class GymnasiumEnv(gymnasium.Env):
    """One environment with Gymnasium's interface and NumPy arrays.

    `info["action_mask"]`, int8 `[num_actions]` as `action_space.sample` takes it, gives the legal actions of the state
    that the observation shows, and `action_masks()` the same as bools, as sb3-contrib's MaskablePPO reads them. After a
    step `info` has the reward terms as `GymnasiumVectorEnv` does. An episode that ended must be reset. `render` also
    shows its last state.

    Arguments and errors are those of `GymnasiumVectorEnv`.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": RENDER_MODES, "render_fps": 4}

    def __init__(self, env_id: str = "hackmatrix", **settings: Any) -> None:
        self._envs = GymnasiumVectorEnv(env_id, 1, **settings)
        self.render_mode = self._envs.render_mode
        self.observation_space = self._envs.single_observation_space
        self.action_space = self._envs.single_action_space
        self._ended, self._mask = True, np.zeros(0, bool)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode; the same seed gives the same episodes as in a vector environment of one."""
        super().reset(seed=seed)
        self._obs, infos = self._envs.reset(seed=seed)
        self._ended, self._mask = False, infos["action_masks"][0]
        return self._obs[0], self._info()

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Return observation, reward, terminated, truncated and info.

        Raises:
            ResetNeeded: the episode has ended.
        """
        if self._ended:
            raise gymnasium.error.ResetNeeded("the episode has ended: call reset()")
        self._obs, rewards, terminated, truncated, infos = self._envs.step(np.asarray(action)[None])
        self._mask, self._ended = infos["action_masks"][0], bool(terminated[0] or truncated[0])
        if self._ended:
            self._obs, self._mask = np.stack(infos["final_obs"]), infos["final_info"]["action_masks"][0]
        terms = {name: float(infos["reward_terms"][name][0]) for name in self._envs.env.spec.reward_terms}
        info = {**self._info(), "reward_terms": terms, **named_terms(terms)}
        return self._obs[0], float(rewards[0]), bool(terminated[0]), bool(truncated[0]), info

    def render(self) -> Frame | None:
        """Return the state as text, or as pixels, uint8 `[height, width, 3]`; None without a render mode."""
        if self.render_mode is None:
            return None
        return self._envs._frame(self._envs._last if self._ended else self._envs._state, self._obs, 0)

    def action_masks(self) -> np.ndarray:
        """Return the legal actions, bool `[num_actions]`; `[0]` for continuous actions."""
        return self._mask

    def _info(self) -> dict[str, Any]:
        return {"action_mask": self._mask.astype(np.int8)}
