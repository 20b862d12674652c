"""One action for several steps of an environment."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from hmx.env.protocol import Env, EnvState, select
from hmx.types import Array, Key, Timestep


def repeated(env: Env, times: int) -> Env:
    """Build the environment in which an action lasts `times` steps, or until its episode ends.

    Rewards, terms and infos of the kind `_sum` are added up, infos of the kind `_max` are maxima, and everything else
    is that of the last step. Limits of the environment count its own steps, those of the result its actions.
    """
    if times == 1:
        return env
    spec = env.spec._replace(max_steps=-(-env.spec.max_steps // times), moved=None)

    def step(state: EnvState, action: Array, keys: Key) -> tuple[EnvState, Timestep]:
        def again(carry: tuple[EnvState, Timestep], i: Array) -> tuple[tuple[EnvState, Timestep], None]:
            state, so_far = carry
            over = so_far.terminated | so_far.truncated
            k_step = jax.vmap(lambda key: jax.random.fold_in(key, i))(keys)
            after, timestep = env.step(state, action, k_step)
            state = select(over, state, after, spec.state_axis)
            return (state, select(over, so_far, _joined(so_far, timestep))), None

        first = env.step(state, action, jax.vmap(lambda key: jax.random.fold_in(key, 0))(keys))
        (state, timestep), _ = jax.lax.scan(again, first, jnp.arange(1, times))
        return state, timestep

    return Env(spec, env.reset, step)


def _joined(before: Timestep, now: Timestep) -> Timestep:
    info = {}
    for name, value in now.info.items():
        if name.endswith("_sum"):
            value = before.info[name] + value
        elif name.endswith("_max"):
            value = jnp.maximum(before.info[name], value)
        info[name] = value
    terms = {name: before.terms[name] + value for name, value in now.terms.items()}
    return now._replace(reward=before.reward + now.reward, terms=terms, info=info)
