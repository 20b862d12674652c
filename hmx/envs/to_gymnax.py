"""The built-in environments for trainers written for gymnax 1.0 or newer; importing this needs the extra gymnax."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax.custom_batching import custom_vmap

from hmx.config.extras import needed
from hmx.config.schema import RewardWeights
from hmx.envs.export import chosen, exported, named_terms
from hmx.envs.protocol import Env, EnvState
from hmx.types import Array, Key, Timestep

with needed("gymnax", "exporting environments"):
    from gymnax.environments import environment, spaces


@struct.dataclass
class GymnaxState(environment.EnvState):
    """A game, the actions that are legal in it (bool `[num_actions]`), and the steps of its episode (`time`)."""

    # Arrays, but JAX also maps over a state with None or axes in their place. gymnax annotates `time` as an int.
    time: Any
    inner: EnvState
    action_mask: Any


@struct.dataclass
class GymnaxParams(environment.EnvParams):
    """The step limit (0: none), fixed when the environment is made: a compiled step does not take it as an argument."""

    max_steps_in_episode: int = struct.field(pytree_node=False, default=0)  # type: ignore[no-untyped-call]


class GymnaxEnv(environment.Environment):
    """An environment of `hmx` with gymnax's interface.

    `step` begins a new episode by itself, as in gymnax, so there is no `step_env`. In addition to gymnax it has
    `action_mask(state)`, and in `info` `terminated`, `truncated`, `final_observation`, `action_mask` (of the state
    returned), `final_action_mask` (of the final state of a truncated episode), `reward_terms`, and each reward term
    under its name (`hmx.envs.export.named_terms`). In HackMatrix an illegal action ends the episode, unless `illegal`
    says otherwise.

    `jax.vmap` of `reset` and `step` becomes one call of the batched environment, which is what makes it quick.

    Args:
        env_id: a built-in environment with one agent.
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
        weights: RewardWeights | None = None,
        illegal: str = "as_is",
        **settings: Any,
    ) -> None:
        super().__init__()
        self.env = exported(env_id, weights, illegal, settings)
        self._illegal = illegal
        self._reset_one, self._step_one = _single(self.env)

    @property
    def default_params(self) -> GymnaxParams:
        """Return the step limit of the environment."""
        return GymnaxParams(self.env.spec.max_steps)

    @partial(jax.jit, static_argnames=("self",))
    def reset(self, key: Key, params: GymnaxParams | None = None) -> tuple[Array, GymnaxState]:
        """Return the first observation `[F]` and the state."""
        self._check(params)
        inner, first = self._reset_one(_typed(key))
        return first.obs[0], GymnaxState(jnp.int32(0), inner, first.legal[0])

    @partial(jax.jit, static_argnames=("self",))
    def step(
        self, key: Key, state: GymnaxState, action: Array, params: GymnaxParams | None = None
    ) -> tuple[Array, GymnaxState, Array, Array, Array, dict[str, Any]]:
        """Return observation, state, reward, terminated, truncated, info; the first two after an automatic reset."""
        self._check(params)
        given = jnp.asarray(action, self.action_space().dtype).reshape(1, *self.action_space().shape)
        taken = chosen(self.env, self._illegal, given, state.action_mask[None])
        inner, after = self._step_one(state.inner, taken, _typed(key))
        time = jnp.where(after.terminated | after.truncated, 0, state.time + 1)
        info = {
            "terminated": after.terminated,
            "truncated": after.truncated,
            "final_observation": after.final_obs[0],
            "action_mask": after.legal[0],
            "final_action_mask": after.final_legal[0],
            "reward_terms": after.terms,
            **named_terms(after.terms),
        }
        reached = GymnaxState(time, inner, after.legal[0])
        return after.obs[0], reached, after.reward[0], after.terminated, after.truncated, info

    def reset_env(self, key: Key, params: GymnaxParams) -> tuple[Array, GymnaxState]:
        """Call `reset`."""
        begun: tuple[Array, GymnaxState] = self.reset(key, params)
        return begun

    def action_mask(self, state: GymnaxState, params: GymnaxParams | None = None) -> Array:
        """Return which actions are legal, bool `[num_actions]`."""
        mask: Array = state.action_mask
        return mask

    @property
    def name(self) -> str:
        """Return the environment's id."""
        return self.env.spec.id

    @property
    def num_actions(self) -> int:
        """Number of discrete actions, or numbers of a continuous one."""
        return self.env.spec.num_actions or self.env.spec.action_dim

    def action_space(self, params: GymnaxParams | None = None) -> Any:
        """Return a discrete space, or a box from -1 to 1."""
        if self.env.spec.action_dim:
            return spaces.Box(-1.0, 1.0, (self.env.spec.action_dim,), jnp.float32)
        return spaces.Discrete(self.env.spec.num_actions)

    def observation_space(self, params: GymnaxParams | None = None) -> Any:
        """Return an unbounded box."""
        return spaces.Box(-jnp.inf, jnp.inf, self.env.spec.obs_shape, jnp.float32)

    def _check(self, params: GymnaxParams | None) -> None:
        if params is not None and params != self.default_params:
            made = self.env.spec.max_steps
            raise ValueError(f"the step limit is {made}: to change it, make the environment with max_steps=...")


def _typed(key: Key) -> Key:
    """Convert raw keys, which users of gymnax often pass, to typed keys."""
    return key if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else jax.random.wrap_key_data(key)


def _single(env: Env) -> tuple[Callable[[Key], Any], Callable[[EnvState, Array, Key], Any]]:
    """Return `reset` and `step` of one environment, without the axis `E`; their vmap is the batched function."""
    axis = env.spec.state_axis

    def without(batch: tuple[EnvState, Timestep]) -> tuple[EnvState, Timestep]:
        state, timestep = batch
        return jax.tree.map(lambda leaf: leaf.squeeze(axis), state), jax.tree.map(lambda leaf: leaf[0], timestep)

    def first(batch: tuple[EnvState, Timestep]) -> Any:
        state, timestep = batch
        moved = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, axis, 0), state), timestep
        return moved, jax.tree.map(lambda _: True, moved)

    def wide(size: int, batched: Any, values: Any) -> Any:
        return jax.tree.map(lambda x, has: x if has else jnp.broadcast_to(x, (size, *x.shape)), values, batched)

    @custom_vmap
    def reset(key: Key) -> tuple[EnvState, Timestep]:
        return without(env.reset(key[None]))

    @reset.def_vmap
    def reset_batch(size: int, batched: Any, key: Key) -> Any:
        return first(env.reset(key))

    @custom_vmap
    def step(state: EnvState, action: Array, key: Key) -> tuple[EnvState, Timestep]:
        batch = jax.tree.map(lambda leaf: jnp.expand_dims(leaf, axis), state)
        return without(env.step(batch, action[None], key[None]))

    @step.def_vmap
    def step_batch(size: int, batched: Any, state: EnvState, action: Array, key: Key) -> Any:
        state, action, key = wide(size, tuple(batched), (state, action, key))
        batch = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, axis), state)
        return first(env.step(batch, action, key))

    return reset, step
