"""Every environment keeps the contract; and the contract's check notices who does not."""

import jax
import jax.numpy as jnp
import pytest

from hmx.config.schema import EnvConfig, RewardWeights
from hmx.env.api_test import check_env
from hmx.env.counting import make_counting
from hmx.env.registry import make_env

TINY = ("counting", "corridor", "frozenlake", "frozenlake-slippery")


@pytest.mark.parametrize("max_steps", [7, 0])
@pytest.mark.parametrize("env_id", TINY)
def test_contract(env_id, max_steps):
    walk = check_env(
        make_env(EnvConfig(id=env_id, max_steps=max_steps, slip=0.3), RewardWeights()), num_envs=3, num_steps=16
    )
    ended = walk.timestep_tp1.truncated.any() if max_steps else walk.timestep_tp1.terminated.any()
    assert bool(ended) or not max_steps


@pytest.mark.slow
def test_hackmatrix_keeps_the_contract():
    """Short episodes, so that both kinds of end are seen, with every rule the configuration can switch."""
    cfg = EnvConfig(max_steps=9, undo_depth=2, loopholes=False)
    walk = check_env(make_env(cfg, RewardWeights()), num_envs=3, num_steps=24)
    assert bool(walk.timestep_tp1.truncated.any())


def broken(**changes):
    """The counting environment with one promise broken in every step."""
    env = make_counting(5)

    def step(state, action, keys):
        state, timestep = env.step(state, action, keys)
        return state, timestep._replace(**{name: change(timestep) for name, change in changes.items()})

    return env._replace(step=step)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (broken(legal=lambda ts: ts.legal & False), "no action is legal"),
        (broken(reward=lambda ts: ts.reward + 1), "terms do not sum"),
        (broken(reward=lambda ts: ts.reward[:, 0]), "reward has the wrong shape"),
        (broken(terms=lambda ts: {"other": ts.terms["count"]}), "terms are not those"),
        (broken(terminated=lambda ts: ts.truncated), "terminated and truncated at once"),
        (broken(final_obs=lambda ts: ts.obs + 1), "final_obs differs"),
        (broken(truncated=lambda ts: ts.obs[:, 0, 0] == 2, final_obs=lambda ts: ts.obs), "truncated before max_steps"),
        (broken(truncated=lambda ts: ts.truncated & False, final_obs=lambda ts: ts.obs), "longer than max_steps"),
        (
            broken(obs=lambda ts: ts.obs.astype(jnp.int32), final_obs=lambda ts: ts.final_obs.astype(jnp.int32)),
            "obs has the wrong",
        ),
        (broken(info=lambda ts: {"wins": ts.terminated}), "report different things"),
        (broken(obs=lambda ts: ts.obs + ts.obs.shape[0], final_obs=lambda ts: ts.final_obs + ts.obs.shape[0]), "alone"),
    ],
)
def test_the_check_notices(env, message):
    with pytest.raises(AssertionError, match=message):
        check_env(env, num_envs=2, num_steps=12)


def test_the_check_notices_a_state_that_changes_type():
    env = make_counting(5)

    def step(state, action, keys):
        state, timestep = env.step(state, action, keys)
        return state._replace(steps=state.steps.astype(jnp.float32)), timestep

    with pytest.raises(AssertionError, match="traced"):
        check_env(env._replace(step=step), num_envs=2, num_steps=3)


def test_the_check_notices_shared_randomness():
    env = make_env(EnvConfig(id="corridor", slip=0.5, max_steps=9), RewardWeights())

    def step(state, action, keys):
        return env.step(state, action, jax.random.split(keys[0], keys.shape[0]))

    with pytest.raises(AssertionError, match="alone"):
        check_env(env._replace(step=step), num_envs=4, num_steps=12)
