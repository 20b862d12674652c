"""Every environment keeps the contract; and the contract's check notices who does not."""

import jax
import jax.numpy as jnp
import pytest

from hmx.config.schema import EnvConfig, RewardWeights
from hmx.env.api_test import check_env
from hmx.env.autoreset import TeamGame, batched
from hmx.env.counting import make_counting
from hmx.env.registry import make_env

TINY = ("counting", "corridor", "frozenlake", "frozenlake-slippery", "recall", "rendezvous", "cartpole-discrete")


@pytest.mark.parametrize("max_steps", [7, 0])
@pytest.mark.parametrize("env_id", TINY)
def test_contract(env_id, max_steps):
    walk = check_env(
        make_env(EnvConfig(id=env_id, max_steps=max_steps, slip=0.3), RewardWeights()), num_envs=3, num_steps=16
    )
    ended = walk.timestep_tp1.truncated.any() if max_steps else walk.timestep_tp1.terminated.any()
    assert bool(ended) or not max_steps


def test_contract_with_several_agents():
    env = make_env(EnvConfig(id="rendezvous", num_agents=2, max_steps=20), RewardWeights())
    seen = check_env(env, num_envs=3, num_steps=30).timestep_tp1
    assert bool((seen.agent_done.any(-1) & ~seen.agent_done.all(-1)).any())  # one was done before the other
    assert bool(seen.terminated.any()) and bool(seen.truncated.any())


@pytest.mark.slow
def test_hackmatrix_keeps_the_contract():
    """Short episodes, so that both kinds of end are seen, with every rule the configuration can switch."""
    cfg = EnvConfig(max_steps=9, undo_depth=2, loopholes=False)
    walk = check_env(make_env(cfg, RewardWeights()), num_envs=3, num_steps=24)
    assert bool(walk.timestep_tp1.truncated.any())


def broken(length=0, **changes):
    """The counting environment with one promise broken in every step."""
    env = make_counting(5, length)

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
        (broken(final_legal=lambda ts: ts.legal[..., ::-1]), "final_legal differs"),
        (broken(final_legal=lambda ts: ts.final_legal & ~ts.truncated[:, None, None]), "no legal action in a truncat"),
        (
            broken(
                truncated=lambda ts: ts.obs[:, 0, 0] == 2, final_obs=lambda ts: ts.obs, final_legal=lambda ts: ts.legal
            ),
            "truncated before max_steps",
        ),
        (
            broken(
                truncated=lambda ts: ts.truncated & False,
                final_obs=lambda ts: ts.obs,
                final_legal=lambda ts: ts.legal,
            ),
            "longer than max_steps",
        ),
        (
            broken(obs=lambda ts: ts.obs.astype(jnp.int32), final_obs=lambda ts: ts.final_obs.astype(jnp.int32)),
            "obs has the wrong",
        ),
        (broken(agent_done=lambda ts: ts.agent_done[:, 0]), "agent_done has the wrong"),
        (broken(length=4, agent_done=lambda ts: ts.agent_done & False), "an agent is not done"),
        (broken(agent_done=lambda ts: ts.agent_done | True), "all agents are done"),
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


def two_agents(first_is_done, pay):
    """Two agents who are paid `pay(step)`; the second is done after step 6, the first where `first_is_done(step)`."""

    def move(step, action, key):
        done = jnp.stack([first_is_done(step + 1) | (step == 5), step == 5])
        return step + 1, {"count": pay(step + 1)}, done

    spec = make_counting(0).spec._replace(
        num_agents=2, num_actions=1, action_names=("a",), action_groups=(("a", 0, 1),)
    )
    return batched(
        spec,
        TeamGame(
            start=lambda key: jnp.int32(0),
            move=move,
            observe=lambda step: jnp.full((2, 1), step, jnp.float32),
            legal=lambda step: jnp.ones((2, 1), bool),
        ),
    )


@pytest.mark.parametrize(
    ("first_is_done", "pay", "message"),
    [
        (lambda step: step >= 3, lambda step: jnp.stack([step <= 3, step > 0]), None),
        (lambda step: step == 3, lambda step: jnp.stack([step <= 3, step > 0]), "takes part again"),
        (lambda step: step >= 3, lambda step: jnp.stack([step <= 4, step > 0]), "that was done is paid"),
    ],
)
def test_an_agent_that_is_done_stays_so_and_is_paid_nothing(first_is_done, pay, message):
    env = two_agents(first_is_done, pay)
    if message is None:
        check_env(env, num_envs=2, num_steps=8)
    else:
        with pytest.raises(AssertionError, match=message):
            check_env(env, num_envs=2, num_steps=8)


def test_the_check_notices_an_agent_done_at_its_reset():
    env = make_env(EnvConfig(id="rendezvous", num_agents=2, max_steps=9), RewardWeights())

    def reset(keys):
        state, timestep = env.reset(keys)
        return state, timestep._replace(agent_done=timestep.agent_done.at[0, 1].set(True))

    with pytest.raises(AssertionError, match="done at its reset"):
        check_env(env._replace(reset=reset), num_envs=2, num_steps=3)


def test_the_check_notices_shared_randomness():
    env = make_env(EnvConfig(id="corridor", slip=0.5, max_steps=9), RewardWeights())

    def step(state, action, keys):
        return env.step(state, action, jax.random.split(keys[0], keys.shape[0]))

    with pytest.raises(AssertionError, match="alone"):
        check_env(env._replace(step=step), num_envs=4, num_steps=12)
