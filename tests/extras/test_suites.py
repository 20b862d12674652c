"""Environments of Craftax behind the contract of ours, against the suite itself; each needs its own package."""

from importlib.util import find_spec

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from env_checks import check_env

from hmx.config.schema import EnvConfig, RewardWeights
from hmx.env.registry import make_env
from hmx.errors import HmxError


def needs(package):
    return pytest.mark.skipif(find_spec(package) is None, reason=f"{package} is not installed")


def made(env_id, **values):
    return make_env(EnvConfig(id=env_id, **values), RewardWeights())


CLASSIC = "craftax/Craftax-Classic-Symbolic-v1"

SUITES = [
    pytest.param(CLASSIC, (1345,), 17, 10_000, marks=needs("craftax"), id="craftax"),
]
"""An id of each suite, the shape of its observations, its number of actions and its own step limit."""


@pytest.mark.optimised  # so that a batch is its members to the last bit
@pytest.mark.parametrize(("env_id", "shape", "num_actions", "limit"), SUITES)
def test_a_suite_keeps_the_contract(env_id, shape, num_actions, limit):
    env = made(env_id, max_steps=7)
    walk = check_env(env, num_envs=2, num_steps=16)
    assert bool(walk.timestep_tp1.truncated.any()) and not bool(walk.timestep_tp1.terminated.all())
    assert (env.spec.obs_shape, env.spec.num_actions, env.spec.max_steps) == (shape, num_actions, 7)
    assert made(env_id, max_steps=0).spec.max_steps == limit
    assert made(env_id, max_steps=1_000_000).spec.max_steps == (limit or 1_000_000)


@needs("craftax")
def test_craftax_moves_as_craftax_moves_it_and_names_its_actions():
    from craftax.craftax_env import make_craftax_env_from_name

    theirs = make_craftax_env_from_name(CLASSIC.removeprefix("craftax/"), auto_reset=False)
    env, own = made(CLASSIC, max_steps=0), jax.jit(theirs.step_env)
    assert env.spec.action_names[:6] == ("noop", "left", "right", "up", "down", "do")
    state, timestep = env.reset(jax.random.split(jax.random.key(3), 1))
    step = jax.jit(env.step)
    for t, action in enumerate([5, 1, 3, 5, 2, 6]):
        keys = jax.random.split(jax.random.fold_in(jax.random.key(4), t), 1)
        k_move, _ = jax.random.split(keys[0])
        before = jax.tree.map(lambda leaf: leaf[0], state.core.state)
        obs, _, reward, _, _ = own(jax.random.key_data(k_move), before, action, theirs.default_params)
        state, timestep = step(state, jnp.full((1, 1), action), keys)
        np.testing.assert_allclose(timestep.obs[0, 0], obs, rtol=1e-5, atol=1e-6)
        assert float(timestep.reward[0, 0]) == pytest.approx(float(reward))


@needs("craftax")
def test_craftax_truncates_where_its_own_limit_ends_a_living_player():
    """Its own environment reports both in one flag."""
    env = made(CLASSIC, max_steps=0)
    state, _ = env.reset(jax.random.split(jax.random.key(3), 1))
    late = state._replace(steps=state.steps + 9_999)
    late = late._replace(core=late.core._replace(state=late.core.state.replace(timestep=jnp.array([9_999]))))
    _, timestep = jax.jit(env.step)(late, jnp.zeros((1, 1), jnp.int32), jax.random.split(jax.random.key(4), 1))
    assert bool(timestep.truncated[0]) and not bool(timestep.terminated[0])


@needs("craftax")
def test_images_are_refused():
    with pytest.raises(HmxError, match="craftax has no environment Craftax-Classic-Pixels-v1") as found:
        made("craftax/Craftax-Classic-Pixels-v1")
    assert "craftax/Craftax-Classic-Symbolic-v1" in found.value.hint
