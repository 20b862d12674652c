"""Several agents with one set of parameters: who takes part when, what each remembers, and a task for two."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from training import build, last_mean, train_seeds

from hmx.algos.collector import Policy, collect, start
from hmx.algos.types import Decision
from hmx.config.learning import PpoConfig
from hmx.config.schema import AlgoConfig, Config, EnvConfig, NetConfig, RunConfig
from hmx.envs.small.rendezvous import make_rendezvous
from hmx.rl import distributions

pytestmark = pytest.mark.long_run

ENVS, AGENTS, STEPS, LIMIT = 16, 2, 40, 9
STAY = 1
OPTIMUM = 3.676  # mean over all starts, see hmx/envs/small/rendezvous.py


def count_and_move_at_random(carry, obs, legal, reset, key):
    """The memory counts the agent's own steps in the episode, and the value says so."""
    logits = jnp.zeros(legal.shape, jnp.float32)
    action = distributions.sample(key, logits, legal)
    log_prob, probs = distributions.log_prob(logits, legal, action), distributions.probs(logits, legal)
    return Decision(action, log_prob, probs, count(carry, obs, reset)), jnp.where(reset[:, None], 0.0, carry) + 1.0


def count(carry, obs, reset):
    return jnp.where(reset[:, None], 0.0, carry)


@pytest.fixture(scope="module")
def played():
    env = make_rendezvous(LIMIT, AGENTS)
    actors = start(env, ENVS, jnp.zeros((ENVS, AGENTS)), jax.random.key(0))
    run = jax.jit(partial(collect, env, Policy(count_and_move_at_random, count), num_steps=STEPS, num_sequences=4))
    _, rollout, _ = run(actors, jax.random.key(1))
    return jax.tree.map(np.asarray, rollout)


def test_carry_of_every_agent_covers_its_episode(played):
    seen = played.transitions
    steps = np.zeros(ENVS)
    for t in range(STEPS):
        steps = np.where(seen.reset_t[t], 0, steps)
        np.testing.assert_array_equal(seen.value_t[t], np.repeat(steps[:, None], AGENTS, 1))
        steps += 1
        cut = seen.truncated_tp1[t].any(-1)
        np.testing.assert_array_equal(steps[cut], LIMIT)
        np.testing.assert_array_equal(seen.value_final_tp1[t], np.repeat(np.where(cut, LIMIT, 0)[:, None], AGENTS, 1))
    assert seen.truncated_tp1.any() and seen.terminated_tp1.all(-1).any()
    begins = seen.reset_t[:: STEPS // 4, :, None]
    np.testing.assert_array_equal(np.where(begins, 0, played.carry), seen.value_t[:: STEPS // 4])


def test_agent_is_active_until_it_is_done(played):
    """Its own part ends by the rules, once, and it counts no more until the next episode."""
    seen = played.transitions
    alive, early, at_the_limit = np.ones((ENVS, AGENTS), bool), 0, 0
    for t in range(STEPS):
        alive = np.where(seen.reset_t[t][:, None], True, alive)
        np.testing.assert_array_equal(seen.alive_t[t], alive)
        assert not seen.reward_tp1[t][~alive].any()
        assert (seen.action_t[t][~alive] == STAY).all()
        met_before = seen.obs_t[t, ..., -1] == 1
        came_home = alive & (seen.reward_tp1[t] > np.where(met_before, 0.5, 1.5))
        np.testing.assert_array_equal((seen.terminated_tp1[t] & alive), came_home)
        early += (came_home.any(-1) & (alive & ~came_home).any(-1)).sum()
        assert not (seen.truncated_tp1[t] & came_home).any()
        at_the_limit += (came_home & seen.truncated_tp1[t].any(-1, keepdims=True)).sum()
        alive &= ~seen.terminated_tp1[t]
    assert early > 3 and at_the_limit > 0


@pytest.fixture(scope="module")
def trained():
    updates, envs, steps = 80, 32, 16
    cfg = Config(
        run=RunConfig(total_steps=updates * envs * steps),
        env=EnvConfig(id="rendezvous", num_envs=envs, num_agents=AGENTS, max_steps=20),
        net=NetConfig(hidden=(64,), activation="tanh"),
        algo=AlgoConfig(num_steps=steps, learning_rate=3e-3, gamma=0.97),
        ppo=PpoConfig(update_epochs=4, num_minibatches=4, ent_coef=0.01, value_target="identity"),
    )
    algorithm = build(cfg)
    return train_seeds(algorithm, updates)


def test_two_agents_learn_to_meet(trained):
    """Random play gets 1.65 in the mean, going home at once -2."""
    returns = [last_mean(metrics, "train/mean_episode_return", 20) for _, metrics in trained]
    assert 0.97 * OPTIMUM < np.median(returns) < 1.01 * OPTIMUM
    lengths = [last_mean(metrics, "train/mean_episode_length", 20) for _, metrics in trained]
    assert np.median(lengths) < 6.0


def test_parameters_are_shared_and_the_ratio_starts_at_one(trained):
    state, metrics = trained[0]
    assert state.params["policy_head"]["kernel"].shape == (64, 3)
    assert state.actors.obs.shape[:2] == (32, AGENTS)
    errors = np.asarray(metrics["train/first_ratio_error"].value)
    assert errors[0] == 0.0
    assert errors.max() < 1e-5
